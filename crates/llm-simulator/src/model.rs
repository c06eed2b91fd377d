//! The model behind the endpoints.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

/// What is asked of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Question {
    /// The model's name.
    pub model: String,
    /// The text of the last message of the user; `blocks` where it is no plain text.
    pub text: String,
}

impl Question {
    /// Reads a body of either shape.
    pub(crate) fn of(body: &Value) -> Question {
        let messages = body["messages"].as_array();
        let asked = messages.and_then(|m| m.iter().rev().find(|m| m["role"] == "user"));
        let content = asked.map(|message| &message["content"]);
        let text = match content {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(blocks)) => {
                let text = |block: &Value| block["text"].as_str().unwrap_or("").to_owned();
                blocks.iter().map(text).collect()
            }
            _ => "blocks".to_owned(),
        };
        Question { model: body["model"].as_str().unwrap_or("").to_owned(), text }
    }
}

/// What the model says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Said {
    /// An answer, with the tokens it took.
    Text {
        /// The text.
        text: String,
        /// Tokens read.
        input_tokens: u64,
        /// Tokens written.
        output_tokens: u64,
    },
    /// A failure of this one request.
    Error {
        /// The provider's word for it.
        kind: String,
        /// What is said.
        message: String,
    },
    /// It was not run in time.
    Expired,
    /// It was cancelled before it ran.
    Canceled,
}

impl Said {
    /// Returns an answer that took 3 tokens in and 5 out.
    pub fn text(text: impl Into<String>) -> Said {
        Said::Text { text: text.into(), input_tokens: 3, output_tokens: 5 }
    }
}

/// A function from questions to answers.
#[derive(Clone)]
pub(crate) struct Model(pub(crate) Arc<dyn Fn(&Question) -> Said + Send + Sync>);

impl Default for Model {
    /// Repeats the question, so that an answer to another one shows.
    fn default() -> Model {
        Model(Arc::new(|question| Said::text(format!("answer to {}", question.text))))
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Model")
    }
}

impl Said {
    /// Returns the answer as a message in the shape of Anthropic.
    pub(crate) fn message(&self, model: &str) -> Value {
        let (text, input, output) = self.parts();
        json!({
            "id": "msg_sim",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "stop_sequence": null,
            "usage": {"input_tokens": input, "output_tokens": output},
        })
    }

    /// Returns the answer as a chat completion in the shape of OpenAI.
    pub(crate) fn completion(&self, model: &str) -> Value {
        let (text, input, output) = self.parts();
        json!({
            "id": "chatcmpl_sim",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": model,
            "choices": [{
                "index": 0,
                "message": {"role": "assistant", "content": text, "refusal": null},
                "logprobs": null,
                "finish_reason": "stop",
            }],
            "usage": {
                "prompt_tokens": input,
                "completion_tokens": output,
                "total_tokens": input + output,
            },
        })
    }

    fn parts(&self) -> (&str, u64, u64) {
        match self {
            Said::Text { text, input_tokens, output_tokens } => {
                (text, *input_tokens, *output_tokens)
            }
            _ => ("", 0, 0),
        }
    }
}
