//! Reads a final answer that has to have a form.

use toolgate_core::{Json, Message, Problem, Schema};

/// The answer, or what is wrong with it.
pub(crate) fn read(text: &str, schema: &Schema) -> Result<Json, Vec<Problem>> {
    let problem = |reason: String| {
        vec![Problem {
            pointer: String::new(),
            reason,
        }]
    };
    let value = serde_json::from_str(unfenced(text))
        .map_err(|error| problem(format!("it is not JSON: {error}")))?;
    let json = Json::new(value).map_err(|error| problem(error.to_string()))?;
    schema.check(&json).map(|()| json)
}

/// The text without the fence that models like to put around JSON.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inner = text
        .strip_prefix("```json")
        .or_else(|| text.strip_prefix("```"));
    inner
        .and_then(|inner| inner.strip_suffix("```"))
        .unwrap_or(text)
        .trim()
}

/// What the model is told about an answer of the wrong form.
pub(crate) fn sent_back(problems: &[Problem]) -> Message {
    Message::user(format!(
        "The answer does not have the form that was asked for: {}. Answer again, with nothing but the JSON.",
        list(problems)
    ))
}

/// What is wrong with an answer, in a line.
pub(crate) fn list(problems: &[Problem]) -> String {
    let of_place = |problem: &Problem| match problem.pointer.as_str() {
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
                read(good, &schema).expect("fits").as_value(),
                &json!({"n": 1})
            );
        }
        assert!(
            read("one", &schema).expect_err("no JSON")[0]
                .reason
                .contains("not JSON")
        );
        assert_eq!(
            read(r#"{"n":"x"}"#, &schema).expect_err("a string")[0].pointer,
            "/n"
        );
    }
}
