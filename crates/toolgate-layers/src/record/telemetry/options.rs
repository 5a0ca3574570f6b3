//! Names and settings of telemetry sinks for configuration files.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{BadOption, HumanDuration, SharedSpanSink, StderrSpans, TelemetryCounters};

/// The options of the layer `telemetry`: the sinks and the content of spans.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryOptions {
    /// The destination of spans.
    pub sink: Option<SpanSinkName>,
    /// Further destinations of spans.
    pub sinks: Vec<SpanSinkName>,
    /// If true, arguments and results are put on spans, redacted; without a redactor they are still
    /// withheld.
    pub capture_content: bool,
    /// The address of the collector, for `otlp`; by default `OTEL_EXPORTER_OTLP_ENDPOINT` or
    /// <http://localhost:4318/v1/traces>.
    pub endpoint: Option<String>,
    /// Additional request headers, for `otlp`.
    pub headers: BTreeMap<String, String>,
    /// The service name of this program, for `otlp` and `langfuse`; by default `OTEL_SERVICE_NAME`
    /// or `toolgate`.
    pub service_name: Option<String>,
    /// The time limit for sending a batch, for `otlp` and `langfuse`.
    pub timeout: HumanDuration,
}

impl Default for TelemetryOptions {
    fn default() -> Self {
        Self {
            sink: None,
            sinks: Vec::new(),
            capture_content: false,
            endpoint: None,
            headers: BTreeMap::new(),
            service_name: None,
            timeout: HumanDuration::from_secs(10),
        }
    }
}

impl fmt::Debug for TelemetryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers contain keys, and `{:?}` ends up in logs.
        let names: Vec<&String> = self.headers.keys().collect();
        f.debug_struct("TelemetryOptions")
            .field("sink", &self.sink)
            .field("sinks", &self.sinks)
            .field("capture_content", &self.capture_content)
            .field("headers", &names)
            .finish_non_exhaustive()
    }
}

/// The sinks that a configuration file can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpanSinkName {
    /// One JSON line per call on the standard error stream.
    Stderr,
    /// No destination.
    Noop,
    /// An OpenTelemetry collector, over http/protobuf.
    #[serde(alias = "otel")]
    Otlp,
    /// Langfuse, with the keys in `LANGFUSE_PUBLIC_KEY` and `LANGFUSE_SECRET_KEY`, at
    /// `LANGFUSE_BASE_URL`.
    Langfuse,
}

impl fmt::Display for SpanSinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Stderr => "stderr",
            Self::Noop => "noop",
            Self::Otlp => "otlp",
            Self::Langfuse => "langfuse",
        })
    }
}

impl TelemetryOptions {
    /// Returns the configured sinks, and rejects one that is named twice.
    pub(crate) fn sink_names(&self) -> Result<Vec<SpanSinkName>, BadOption> {
        let names: Vec<_> = self.sink.iter().chain(&self.sinks).copied().collect();
        let twice = names
            .iter()
            .enumerate()
            .find(|(at, name)| names[..*at].contains(name));
        match twice {
            Some((_, name)) => Err(BadOption::new("sinks", format!("names {name} twice"))),
            None => Ok(names),
        }
    }

    /// Rejects options that make no sense together with these sinks.
    pub(crate) fn check_sinks(&self, names: &[SpanSinkName]) -> Result<(), BadOption> {
        let otlp = names.contains(&SpanSinkName::Otlp);
        // An option without effect is a mistake: the operator believes that spans are sent there.
        if !otlp && self.endpoint.is_some() {
            return Err(BadOption::new(
                "endpoint",
                "is only used by the sink otlp, which is not configured",
            ));
        }
        if !otlp && !self.headers.is_empty() {
            return Err(BadOption::new(
                "headers",
                "are only used by the sink otlp, which is not configured",
            ));
        }
        if self.timeout.get().is_zero() {
            return Err(BadOption::new(
                "timeout",
                "is zero; set a limit such as 10s",
            ));
        }
        Ok(())
    }

    /// Builds a sink; `None` for `noop`.
    pub(crate) fn build_sink(
        &self,
        name: SpanSinkName,
        counters: &TelemetryCounters,
    ) -> Result<Option<SharedSpanSink>, BadOption> {
        match name {
            SpanSinkName::Stderr => Ok(Some(SharedSpanSink::new(StderrSpans))),
            SpanSinkName::Noop => Ok(None),
            SpanSinkName::Otlp | SpanSinkName::Langfuse => self.remote(name, counters).map(Some),
        }
    }

    #[cfg(feature = "otlp")]
    fn remote(
        &self,
        name: SpanSinkName,
        counters: &TelemetryCounters,
    ) -> Result<SharedSpanSink, BadOption> {
        use crate::{OtlpSettings, OtlpSpans};
        let environment = |name: &str| std::env::var(name).ok();
        let settings = match name {
            SpanSinkName::Langfuse => OtlpSettings::for_langfuse(environment)?,
            _ => OtlpSettings {
                endpoint: self.endpoint.clone(),
                headers: self.headers.clone(),
                ..Default::default()
            },
        };
        let settings = OtlpSettings {
            service_name: self.service_name.clone(),
            timeout: self.timeout.get(),
            ..settings
        };
        OtlpSpans::start(settings, counters.clone()).map(SharedSpanSink::new)
    }

    #[cfg(not(feature = "otlp"))]
    fn remote(
        &self,
        name: SpanSinkName,
        _: &TelemetryCounters,
    ) -> Result<SharedSpanSink, BadOption> {
        let missing = format!("{name} needs a build with the feature `otlp`; use stderr or noop");
        Err(BadOption::new("sinks", missing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values_do_not_show_in_debug_output() {
        let headers = BTreeMap::from([("authorization".to_owned(), "hunter2".to_owned())]);
        let options = TelemetryOptions {
            headers,
            ..TelemetryOptions::default()
        };
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
