//! The fields of a document, from its JSON schema.

use std::collections::VecDeque;

use clap_mangen::roff::{Roff, bold, italic, roman};
use serde_json::Value;

use super::prose::{inlines, paragraphs, words};

/// The particulars of a page.
pub(crate) struct Style<'a> {
    /// The heading of the fields outside of all tables.
    pub(crate) root: &'a str,
    /// A document whose values are the defaults.
    pub(crate) defaults: Option<&'a Value>,
    /// Words for types that the schema only describes in parts.
    pub(crate) own_words: &'a [(&'a str, &'a str)],
    /// Headings of tables that are found at more than one place.
    pub(crate) sections: &'a [(&'a str, &'a str)],
}

/// A table that waits for its section.
struct Table<'a> {
    /// Where it is found: `limits.tmp`.
    path: String,
    /// The name of its type.
    name: &'a str,
}

/// A section for the fields at the top, and one for each kind of table below.
pub(crate) fn sections(roff: &mut Roff, schema: &Value, style: &Style<'_>) {
    let mut waiting = VecDeque::new();
    let mut seen: Vec<&str> = Vec::new();
    roff.control("SH", [style.root]);
    let page = Page { schema, style };
    page.fields(roff, schema, "", &mut waiting);
    while let Some(table) = waiting.pop_front() {
        if seen.contains(&table.name) {
            continue;
        }
        seen.push(table.name);
        let heading = style.sections.iter().find(|(_, path)| *path == table.path);
        let heading = heading.map_or(table.path.as_str(), |(heading, _)| heading);
        roff.control("SH", [heading]);
        let definition = page.definition(table.name);
        if let Some(text) = definition["description"].as_str() {
            paragraphs(roff, text);
        }
        page.fields(roff, definition, &table.path, &mut waiting);
    }
}

/// A section for one table, whatever types its fields have.
pub(crate) fn section(
    roff: &mut Roff,
    heading: &str,
    table: &Value,
    schema: &Value,
    style: &Style<'_>,
) {
    roff.control("SH", [heading]);
    if let Some(text) = table["description"].as_str() {
        paragraphs(roff, text);
    }
    Page { schema, style }.fields(roff, table, "", &mut VecDeque::new());
}

struct Page<'a> {
    schema: &'a Value,
    style: &'a Style<'a>,
}

impl<'a> Page<'a> {
    fn definition(&self, name: &str) -> &'a Value {
        let definition = &self.schema["$defs"][name];
        assert!(definition.is_object(), "the schema has no {name}");
        definition
    }

    fn fields(
        &self,
        roff: &mut Roff,
        table: &'a Value,
        path: &str,
        waiting: &mut VecDeque<Table<'a>>,
    ) {
        let Some(properties) = table["properties"].as_object() else {
            self.variants(roff, table);
            return;
        };
        let required: Vec<&str> = table["required"]
            .as_array()
            .map(|names| names.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        for (name, field) in properties {
            let at = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            let mut header = vec![bold(name.as_str()), roman(" ("), italic(self.kind(field))];
            if let Some(default) = self.default(&at) {
                header.push(roman(format!("; default {default}")));
            } else if self.style.defaults.is_some() && required.contains(&name.as_str()) {
                header.push(roman("; required"));
            }
            header.push(roman(")"));
            roff.control("TP", []);
            roff.text(header);
            let text = field["description"].as_str();
            let text = text.unwrap_or_else(|| panic!("{at} has no documentation"));
            roff.text(inlines(text));
            self.collect(field, &at, waiting);
        }
    }

    /// The values of an enumeration, each with its meaning.
    fn variants(&self, roff: &mut Roff, definition: &Value) {
        for variant in alternatives(definition) {
            if let (Some(name), Some(text)) =
                (variant["const"].as_str(), variant["description"].as_str())
            {
                roff.control("TP", []);
                roff.text([bold(name)]);
                words(roff, text);
            }
        }
    }

    /// The tables that a field holds, which get sections of their own.
    fn collect(&self, field: &'a Value, path: &str, waiting: &mut VecDeque<Table<'a>>) {
        if let Some(name) = reference(field) {
            if self.style.own_words.iter().any(|(own, _)| *own == name) {
                return;
            }
            let definition = self.definition(name);
            let documented_values = alternatives(definition)
                .iter()
                .any(|variant| variant["const"].is_string() && variant["description"].is_string());
            if definition["properties"].is_object() || documented_values {
                waiting.push_back(Table {
                    path: path.to_owned(),
                    name,
                });
            }
            for inner in alternatives(definition) {
                self.collect(inner, path, waiting);
            }
        }
        for inner in alternatives(field) {
            self.collect(inner, path, waiting);
        }
        if field["items"].is_object() {
            self.collect(&field["items"], &format!("{path}[]"), waiting);
        }
        if field["additionalProperties"].is_object() {
            self.collect(
                &field["additionalProperties"],
                &format!("{path}.*"),
                waiting,
            );
        }
    }

    /// A field's type in words.
    fn kind(&self, field: &Value) -> String {
        if let Some(title) = field["title"].as_str() {
            return title.to_owned();
        }
        if let Some(name) = reference(field) {
            let own = self.style.own_words.iter().find(|(own, _)| *own == name);
            return own.map_or_else(
                || self.kind(self.definition(name)),
                |(_, words)| (*words).to_owned(),
            );
        }
        if let Some(value) = field.get("const") {
            return value.as_str().unwrap_or_default().to_owned();
        }
        let alternatives = alternatives(field);
        if !alternatives.is_empty() {
            let kinds: Vec<String> = alternatives.iter().map(|inner| self.kind(inner)).collect();
            return self.joined(kinds);
        }
        if let Some(values) = field["enum"].as_array() {
            return self.joined(
                values
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect(),
            );
        }
        let types = match &field["type"] {
            Value::Array(types) => types.clone(),
            Value::Null => return "any value".to_owned(),
            one => vec![one.clone()],
        };
        let kinds = types
            .iter()
            .filter_map(Value::as_str)
            .map(|name| match name {
                "string" => "text".to_owned(),
                "boolean" => "true or false".to_owned(),
                "integer" => "whole number".to_owned(),
                "array" => format!("list of {}", self.kind(&field["items"])),
                "object" if field["additionalProperties"].is_object() => {
                    format!("table of {}", self.kind(&field["additionalProperties"]))
                }
                "object" => "table".to_owned(),
                other => other.to_owned(),
            });
        self.joined(kinds.collect())
    }

    /// `a, b or c`. Where every field may be left out, `null` says nothing.
    fn joined(&self, mut kinds: Vec<String>) -> String {
        if self.style.defaults.is_some() {
            kinds.retain(|kind| kind != "null");
        }
        match kinds.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, first)) => format!("{} or {last}", first.join(", ")),
            None => "null".to_owned(),
        }
    }

    /// The default of the field at this path, unless a section stands for
    /// several tables with defaults of their own.
    fn default(&self, path: &str) -> Option<String> {
        let shared = |(_, table): &(&str, &str)| path.starts_with(&format!("{table}."));
        if self.style.sections.iter().any(shared) {
            return None;
        }
        let mut value = self.style.defaults?;
        for name in path.split('.') {
            value = value.get(name)?;
        }
        match value {
            Value::Object(table) if table.len() <= 2 && table.values().all(is_plain) => {
                let pairs: Vec<String> = table.iter().map(|(k, v)| format!("{k} = {v}")).collect();
                Some(format!("{{ {} }}", pairs.join(", ")))
            }
            other if is_plain(other) => Some(other.to_string()),
            _ => None,
        }
    }
}

fn is_plain(value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}

fn reference(field: &Value) -> Option<&str> {
    field["$ref"].as_str()?.strip_prefix("#/$defs/")
}

fn alternatives(field: &Value) -> Vec<&Value> {
    let of = |key: &str| field[key].as_array().map(|list| list.iter().collect());
    of("oneOf").or_else(|| of("anyOf")).unwrap_or_default()
}
