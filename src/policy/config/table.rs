//! A table of a file: takes values out of it as what they should be, and notes what they are not.

use std::time::Duration;

use super::raw::Raw;
use crate::call::Setting;

const DURATION: &str = "write a duration with its unit, such as \"250ms\" or \"10s\"";
const OR_NONE: &str = ", or \"none\"";

/// What is wrong with a file.
pub(super) type Problems = Vec<String>;

/// A table, whose keys are known.
pub(super) struct Table<'a> {
    /// What stands before its keys: nothing, or `backoff.`.
    prefix: &'static str,
    entries: Vec<(String, Raw)>,
    problems: &'a mut Problems,
}

impl<'a> Table<'a> {
    /// Takes the keys that are known, and notes the others and those that are there twice.
    pub(super) fn new(
        prefix: &'static str,
        entries: Vec<(String, Raw)>,
        known: &[&str],
        problems: &'a mut Problems,
    ) -> Self {
        let mut table = Self {
            prefix,
            entries: Vec::new(),
            problems,
        };
        for (key, value) in entries {
            if !known.contains(&key.as_str()) {
                let meant = nearest(&key, known).map_or_else(
                    || format!("there are {}", known.join(", ")),
                    |nearest| format!("did you mean `{nearest}`?"),
                );
                table.note(&key, &value, &format!("there is no such setting; {meant}"));
            } else if table.entries.iter().any(|(before, _)| *before == key) {
                table.note(&key, &value, "it has been set before");
            } else {
                table.entries.push((key, value));
            }
        }
        table
    }

    fn note(&mut self, key: &str, value: &Raw, reason: &str) {
        self.problems
            .push(format!("{}{key} = {value}: {reason}", self.prefix));
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|(name, _)| name == key)
    }

    fn take(&mut self, key: &str) -> Option<Raw> {
        let at = self.entries.iter().position(|(name, _)| name == key)?;
        Some(self.entries.swap_remove(at).1)
    }

    /// The value of `key` as `read` takes it, where it does.
    fn read<T>(
        &mut self,
        key: &str,
        reason: &str,
        read: impl FnOnce(&Raw) -> Option<T>,
    ) -> Option<T> {
        let raw = self.take(key)?;
        let value = read(&raw);
        if value.is_none() {
            self.note(key, &raw, reason);
        }
        value
    }

    pub(super) fn duration(&mut self, key: &str) -> Option<Duration> {
        self.read(key, DURATION, duration)
    }

    pub(super) fn duration_or_none(&mut self, key: &str) -> Setting<Duration> {
        self.or_none(key, DURATION, duration)
    }

    pub(super) fn bytes_or_none(&mut self, key: &str) -> Setting<usize> {
        self.or_none(key, "write a number of bytes", integer)
    }

    fn or_none<T>(
        &mut self,
        key: &str,
        reason: &str,
        read: impl FnOnce(&Raw) -> Option<T>,
    ) -> Setting<T> {
        let found = self.read(key, &format!("{reason}{OR_NONE}"), |raw| match raw {
            Raw::Text(text) if text == "none" => Some(Setting::Off),
            raw => read(raw).map(Setting::Set),
        });
        found.unwrap_or(Setting::Inherit)
    }

    pub(super) fn integer(&mut self, key: &str) -> Option<u32> {
        self.read(key, "write a whole number, from 0 to 4294967295", integer)
    }

    pub(super) fn number(&mut self, key: &str) -> Option<f64> {
        self.read(key, "write a number", |raw| match raw {
            Raw::Float(value) => Some(*value),
            // Of those that a float cannot hold exactly none is in a range that a setting has.
            #[allow(clippy::cast_precision_loss)]
            Raw::Integer(value) => Some(*value as f64),
            _ => None,
        })
    }

    pub(super) fn switch(&mut self, key: &str) -> Option<bool> {
        self.read(key, "write true or false", |raw| match raw {
            Raw::Bool(value) => Some(*value),
            _ => None,
        })
    }

    /// One of a few words, each with what it stands for.
    pub(super) fn word<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Option<T> {
        let names: Vec<_> = words.iter().map(|(name, _)| format!("{name:?}")).collect();
        let reason = format!("write one of {}", names.join(", "));
        self.read(key, &reason, |raw| match raw {
            Raw::Text(text) => {
                let found = words.iter().find(|(name, _)| name == text);
                found.map(|(_, value)| *value)
            }
            _ => None,
        })
    }

    /// A table beneath this one, or "none".
    pub(super) fn table_or_none(&mut self, key: &str) -> Setting<Vec<(String, Raw)>> {
        let reason = "write a table, or \"none\"";
        let found = self.read(key, reason, |raw| match raw {
            Raw::Table(entries) => Some(Setting::Set(entries.clone())),
            Raw::Text(text) if text == "none" => Some(Setting::Off),
            _ => None,
        });
        found.unwrap_or(Setting::Inherit)
    }

    /// What a table beneath this one notes its problems in.
    pub(super) fn problems(&mut self) -> &mut Problems {
        self.problems
    }
}

fn duration(raw: &Raw) -> Option<Duration> {
    match raw {
        Raw::Text(text) => humantime::parse_duration(text).ok(),
        _ => None,
    }
}

fn integer<T: TryFrom<i128>>(raw: &Raw) -> Option<T> {
    match raw {
        Raw::Integer(value) => T::try_from(*value).ok(),
        _ => None,
    }
}

/// The known key that somebody meant who wrote `key`, if there is one.
fn nearest<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    // Somebody may write a key as another language does.
    let key = key.to_lowercase().replace('-', "_");
    let plain = |text: &str| text.replace('_', "");
    let key = plain(&key);
    let part = known
        .iter()
        .find(|name| key.len() > 3 && plain(name).contains(&key));
    if part.is_some() {
        return part.copied();
    }
    let distance = |name: &str| strsim::damerau_levenshtein(&key, &plain(name));
    let nearest = known.iter().min_by_key(|name| distance(name))?;
    let near = distance(nearest) <= nearest.len() / 2;
    near.then_some(nearest)
}
