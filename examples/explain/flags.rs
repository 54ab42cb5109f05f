//! The flags: settings of a policy, and what to do with it.

use serde_json::{Map, Value};

#[derive(Default)]
pub(crate) struct Flags {
    /// The settings, as a file would have them.
    pub(crate) settings: Value,
    pub(crate) file: Option<String>,
    pub(crate) svg: Option<String>,
    pub(crate) help: bool,
}

impl Flags {
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut args = args.into_iter();
        let mut settings = Map::new();
        let mut flags = Self::default();
        while let Some(arg) = args.next() {
            let Some(name) = arg.strip_prefix("--") else {
                return Err(format!("{arg}: a flag begins with --; see --help"));
            };
            if name == "help" {
                flags.help = true;
                continue;
            }
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (name, args.next()),
            };
            let value = value.ok_or_else(|| format!("--{name} needs a value"))?;
            match name {
                "file" => flags.file = Some(value),
                "svg" => flags.svg = Some(value),
                _ => set(&mut settings, &name.replace('-', "_"), &value)?,
            }
        }
        flags.settings = Value::Object(settings);
        Ok(flags)
    }
}

/// `backoff.base` is `base` in the table `backoff`.
fn set(settings: &mut Map<String, Value>, name: &str, value: &str) -> Result<(), String> {
    // A number or a switch, else a text.
    let parsed = serde_json::from_str::<Value>(value)
        .ok()
        .filter(|value| value.is_number() || value.is_boolean())
        .unwrap_or_else(|| Value::from(value));
    let Some((table, key)) = name.split_once('.') else {
        settings.insert(name.to_owned(), parsed);
        return Ok(());
    };
    let table = settings
        .entry(table)
        .or_insert_with(|| Value::Object(Map::new()));
    let table = table
        .as_object_mut()
        .ok_or_else(|| format!("--{name} {value}: it has been set as a whole"))?;
    table.insert(key.to_owned(), parsed);
    Ok(())
}
