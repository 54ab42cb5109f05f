//! A value as a file has it, before it is known what it should be.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// What a self-describing format can hold.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Raw {
    Nothing,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List,
    /// In the order of the file, a key that is there twice included.
    Table(Vec<(String, Raw)>),
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::List => f.write_str("a list"),
            Self::Table(_) => f.write_str("a table"),
        }
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the settings of a policy")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Raw, E> {
        Ok(Raw::Integer(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Raw, E> {
        // Above that it is too large for every setting, whatever it is.
        Ok(Raw::Integer(i128::try_from(value).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Nothing)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Raw, D::Error> {
        Raw::deserialize(inner)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Raw, A::Error> {
        while list.next_element::<Raw>()?.is_some() {}
        Ok(Raw::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = table.next_entry::<String, Raw>()? {
            entries.push(entry);
        }
        Ok(number_in_disguise(&entries).unwrap_or(Raw::Table(entries)))
    }
}

/// With its feature `arbitrary_precision`, which anybody in the tree may switch on, `serde_json` hands a
/// number over as a table with this key.
fn number_in_disguise(entries: &[(String, Raw)]) -> Option<Raw> {
    match entries {
        [(key, Raw::Text(number))] if key == "$serde_json::private::Number" => {
            let integer = number.parse().map(Raw::Integer);
            integer.or_else(|_| number.parse().map(Raw::Float)).ok()
        }
        _ => None,
    }
}
