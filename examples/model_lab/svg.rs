//! The picture.
use crate::run::Run;
pub(crate) fn picture(_: &[Run]) -> String {
    String::new()
}
