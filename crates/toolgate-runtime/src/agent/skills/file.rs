//! Parses a `SKILL.md`: name and description of the skill, then its instructions.

use serde_json::{Map, Value};

use crate::agent::skills::front_matter::{FrontMatterError, YamlNode, split_front_matter};

/// The content of a `SKILL.md`.
///
/// ```
/// use toolgate_runtime::SkillFile;
/// let text = "---\nname: pdf\ndescription: Reads PDF files.\nallowed-tools: read_pdf\n---\nFirst, call read_pdf.\n";
/// let file = SkillFile::parse(text, "pdf")?;
/// assert_eq!((file.description.as_str(), file.instructions.as_str()), ("Reads PDF files.", "First, call read_pdf."));
/// # Ok::<(), toolgate_runtime::SkillFault>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SkillFile {
    /// The skill's name: that of its folder.
    pub name: String,
    /// The purpose of the skill and when it helps. This is all that a model knows before it loads
    /// the skill.
    pub description: String,
    /// The tools that it works with, as it names them. An entry that is not the name of a tool,
    /// such as `Bash(git:*)`, is kept and has no effect.
    pub allowed_tools: Vec<String>,
    /// The license.
    pub license: Option<String>,
    /// The requirements on the environment.
    pub compatibility: Option<String>,
    /// Other data of its author.
    pub metadata: Map<String, Value>,
    /// Keys that the format does not define.
    pub other: Map<String, Value>,
    /// The text for the model that loads the skill.
    pub instructions: String,
}

/// A problem that makes a `SKILL.md` unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct SkillFault {
    /// The line in the file, counted from 1.
    pub line: usize,
    /// The problem there.
    pub problem: String,
}

impl SkillFile {
    /// The maximum number of characters of a name.
    pub const NAME: usize = 64;
    /// The maximum number of characters of a description.
    pub const DESCRIPTION: usize = 1024;
    const COMPATIBILITY: usize = 500;

    /// Parses the text of a `SKILL.md` in the folder named `folder`.
    pub fn parse(text: &str, folder: &str) -> Result<Self, SkillFault> {
        let (entries, body) = split_front_matter(text)?;
        let mut name = None;
        let mut description = None;
        let mut file = Self {
            name: String::new(),
            description: String::new(),
            allowed_tools: Vec::new(),
            license: None,
            compatibility: None,
            metadata: Map::new(),
            other: Map::new(),
            instructions: body.trim().to_owned(),
        };
        for (key, node) in entries {
            match key.as_str() {
                "name" => name = Some(checked_name(&node, folder)?),
                "description" => description = Some(checked_text(&key, &node, Self::DESCRIPTION)?),
                "allowed-tools" => file.allowed_tools = parse_tools(&node)?,
                "license" => file.license = Some(checked_text(&key, &node, Self::DESCRIPTION)?),
                "compatibility" => {
                    file.compatibility = Some(checked_text(&key, &node, Self::COMPATIBILITY)?)
                }
                "metadata" => file.metadata = parse_metadata(node)?,
                _ => drop(file.other.insert(key, node.value)),
            }
        }
        file.name = name.ok_or_else(|| missing_key("name"))?;
        file.description = description.ok_or_else(|| missing_key("description"))?;
        Ok(file)
    }
}

fn fault_at(line: usize, problem: impl Into<String>) -> SkillFault {
    SkillFault {
        line,
        problem: problem.into(),
    }
}

fn missing_key(key: &str) -> SkillFault {
    fault_at(1, format!("the front matter has no `{key}`"))
}

fn checked_name(node: &YamlNode, folder: &str) -> Result<String, SkillFault> {
    let name = checked_text("name", node, SkillFile::NAME)?;
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.chars().all(fits)
        || name.starts_with('-')
        || name.ends_with('-')
        || name.contains("--")
    {
        let rule = "a name has lowercase letters, digits and single hyphens between them";
        return Err(fault_at(
            node.line,
            format!("{name:?} is not the name of a skill: {rule}"),
        ));
    }
    if name == folder {
        Ok(name)
    } else {
        Err(fault_at(
            node.line,
            format!("the skill is named {name:?} but its folder {folder:?}"),
        ))
    }
}

/// Returns a text that is not empty and not too long.
fn checked_text(key: &str, node: &YamlNode, most: usize) -> Result<String, SkillFault> {
    let Value::String(text) = &node.value else {
        return Err(fault_at(node.line, format!("`{key}` has to be text")));
    };
    let text = text.trim();
    match text.chars().count() {
        0 => Err(fault_at(node.line, format!("`{key}` is empty"))),
        long if long > most => Err(fault_at(
            node.line,
            format!("`{key}` has {long} characters, {most} are allowed"),
        )),
        _ => Ok(text.to_owned()),
    }
}

/// Parses a list, or names with spaces or commas between them.
fn parse_tools(node: &YamlNode) -> Result<Vec<String>, SkillFault> {
    let wrong = || {
        fault_at(
            node.line,
            "`allowed-tools` has to be a list of names, or names with spaces between them",
        )
    };
    match &node.value {
        Value::String(text) => Ok(split_names(text)),
        Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong))
            .collect(),
        _ => Err(wrong()),
    }
}

/// Splits names. Text in parentheses belongs to its name: `Bash(git add:*) Read` has two.
fn split_names(text: &str) -> Vec<String> {
    let mut open = 0_usize;
    let names = text.split(|c: char| {
        match c {
            '(' => open += 1,
            ')' => open = open.saturating_sub(1),
            _ => {}
        }
        open == 0 && (c == ',' || c.is_whitespace())
    });
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

fn parse_metadata(node: YamlNode) -> Result<Map<String, Value>, SkillFault> {
    match node.value {
        Value::Object(map) => Ok(map),
        Value::String(text) if text.trim().is_empty() => Ok(Map::new()),
        _ => Err(fault_at(
            node.line,
            "`metadata` has to be a list of `key: value`",
        )),
    }
}

impl From<FrontMatterError> for SkillFault {
    fn from(FrontMatterError { line, problem }: FrontMatterError) -> Self {
        Self { line, problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(front: &str) -> Result<SkillFile, SkillFault> {
        SkillFile::parse(&format!("---\n{front}\n---\n\nDo it.\n"), "pdf")
    }

    fn refused(front: &str) -> (usize, String) {
        let fault = read(front).expect_err(front);
        (fault.line, fault.problem)
    }

    #[test]
    fn a_whole_file_is_read_and_unknown_keys_are_kept() {
        let file = read(
            "name: pdf\ndescription: >-\n  Reads\n  files.\nlicense: MIT\nallowed-tools:\n  - read_pdf\n  - grep\n\
             compatibility: needs poppler\nmetadata:\n  version: 1.0\nmodel: any",
        )
        .expect("fine");
        assert_eq!(
            (file.name.as_str(), file.description.as_str()),
            ("pdf", "Reads files.")
        );
        assert_eq!(file.allowed_tools, ["read_pdf", "grep"]);
        assert_eq!(
            (file.license.as_deref(), file.compatibility.as_deref()),
            (Some("MIT"), Some("needs poppler"))
        );
        assert_eq!(Value::Object(file.metadata), json!({ "version": "1.0" }));
        assert_eq!(Value::Object(file.other), json!({ "model": "any" }));
        assert_eq!(file.instructions, "Do it.");
    }

    #[test]
    fn tools_are_a_list_or_words_and_text_in_parentheses_stays_together() {
        let tools = |text: &str| {
            read(&format!("name: pdf\ndescription: d\nallowed-tools: {text}"))
                .map(|f| f.allowed_tools)
        };
        assert_eq!(
            tools("Bash(git add:*) Read").expect("fine"),
            ["Bash(git add:*)", "Read"]
        );
        assert_eq!(
            tools("Read, Grep,Glob").expect("fine"),
            ["Read", "Grep", "Glob"]
        );
        assert_eq!(tools("[a, b]").expect("fine"), ["a", "b"]);
        assert_eq!(tools("").expect("fine"), [""; 0]);
        assert_eq!(tools("{a: b}").expect_err("a map").line, 4);
        assert_eq!(tools("[[a]]").expect_err("nested").line, 4);
    }

    proptest! {
        #[test]
        fn any_file_is_parsed_or_rejected_with_a_line_of_it(
            front in r#"([a-z]{0,3}[ \t\n:?&*!|>'"%@`#,{}\[\]~ä-]{0,4}){0,12}"#,
        ) {
            if let Err(fault) = read(&front) {
                prop_assert!((1..=front.lines().count() + 3).contains(&fault.line), "{fault}");
            }
        }
    }

    #[test]
    fn a_name_is_short_and_plain_and_that_of_its_folder() {
        for bad in [
            "PDF",
            "pdf tools",
            "pdf_tools",
            "-pdf",
            "pdf-",
            "p--df",
            "../pdf",
            "''",
            &"a".repeat(65),
        ] {
            assert_eq!(
                refused(&format!("description: d\nname: {bad}")).0,
                3,
                "{bad}"
            );
        }
        let (line, problem) = refused("name: docx\ndescription: d");
        assert_eq!(
            (line, problem.as_str()),
            (2, "the skill is named \"docx\" but its folder \"pdf\"")
        );
    }

    #[test]
    fn a_missing_empty_too_long_or_non_text_value_is_named() {
        assert_eq!(
            refused("name: pdf").1,
            "the front matter has no `description`"
        );
        assert_eq!(
            refused("description: d").1,
            "the front matter has no `name`"
        );
        assert_eq!(
            refused("name: pdf\ndescription:"),
            (3, "`description` is empty".into())
        );
        assert_eq!(
            refused("name: pdf\ndescription: [a]"),
            (3, "`description` has to be text".into())
        );
        let long = "ä".repeat(1025);
        assert_eq!(refused(&format!("name: pdf\ndescription: {long}")).0, 3);
        assert!(read(&format!("name: pdf\ndescription: {}", "ä".repeat(1024))).is_ok());
        assert_eq!(refused("name: pdf\ndescription: d\nmetadata: x").0, 4);
    }
}
