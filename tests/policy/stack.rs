//! The stack that a policy builds.
