//! Parses a final answer that has to have a format.

use toolgate_core::{Json, Message, Schema, SchemaProblem};

/// Returns the answer as JSON, or the problems with it.
pub(crate) fn parse_output(text: &str, schema: &Schema) -> Result<Json, Vec<SchemaProblem>> {
    let problem = |reason: String| {
        vec![SchemaProblem {
            pointer: String::new(),
            reason,
        }]
    };
    let value = serde_json::from_str(strip_fence(text))
        .map_err(|error| problem(format!("it is not JSON: {error}")))?;
    let json = Json::new(value).map_err(|error| problem(error.to_string()))?;
    schema.check_value(&json).map(|()| json)
}

/// Returns the text without the code fence that models often put around JSON.
fn strip_fence(text: &str) -> &str {
    let text = text.trim();
    let inner = text
        .strip_prefix("```json")
        .or_else(|| text.strip_prefix("```"));
    inner
        .and_then(|inner| inner.strip_suffix("```"))
        .unwrap_or(text)
        .trim()
}

/// Builds the message for the model about an answer in the wrong format.
pub(crate) fn rejection_message(problems: &[SchemaProblem]) -> Message {
    Message::user(format!(
        "The answer does not have the requested format: {}. Answer again, with nothing but the JSON.",
        list_problems(problems)
    ))
}

/// Lists the problems of an answer in one line.
pub(crate) fn list_problems(problems: &[SchemaProblem]) -> String {
    let of_place = |problem: &SchemaProblem| match problem.pointer.as_str() {
        "" => problem.reason.clone(),
        pointer => format!("{pointer}: {}", problem.reason),
    };
    problems.iter().map(of_place).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_read_with_or_without_a_fence_and_its_problems_are_named() {
        let schema =
            json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let schema = Schema::new(schema).expect("valid");
        for good in [r#"{"n":1}"#, "```json\n{\"n\":1}\n```", "```\n{\"n\":1}```"] {
            assert_eq!(
                parse_output(good, &schema).expect("fits").as_value(),
                &json!({"n": 1})
            );
        }
        assert!(
            parse_output("one", &schema).expect_err("no JSON")[0]
                .reason
                .contains("not JSON")
        );
        assert_eq!(
            parse_output(r#"{"n":"x"}"#, &schema).expect_err("a string")[0].pointer,
            "/n"
        );
    }
}
