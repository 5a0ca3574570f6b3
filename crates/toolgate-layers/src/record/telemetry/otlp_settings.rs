//! The connection settings for an OpenTelemetry collector.

use std::{collections::BTreeMap, env, fmt, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{Resource, trace::SpanExporter as _};
use reqwest::header::{HeaderName, HeaderValue};

use crate::{BadOption, SinkError};

/// The address of a collector, with headers and limits.
#[derive(Clone, PartialEq)]
pub struct OtlpSettings {
    /// The address, with its path; by default that of the environment
    /// (`OTEL_EXPORTER_OTLP_ENDPOINT`) or `http://localhost:4318/v1/traces`.
    pub endpoint: Option<String>,
    /// Additional request headers.
    pub headers: BTreeMap<String, String>,
    /// The service name of this program; by default `OTEL_SERVICE_NAME` or `toolgate`.
    pub service_name: Option<String>,
    /// The time limit for sending a batch, including retries.
    pub timeout: Duration,
}

impl Default for OtlpSettings {
    fn default() -> Self {
        Self {
            endpoint: None,
            headers: BTreeMap::new(),
            service_name: None,
            timeout: Duration::from_secs(10),
        }
    }
}

impl OtlpSettings {
    /// Returns the settings for Langfuse, from `LANGFUSE_PUBLIC_KEY`, `LANGFUSE_SECRET_KEY` and
    /// `LANGFUSE_BASE_URL`.
    ///
    /// # Errors
    ///
    /// Fails if a key is missing, or if the environment has headers for another collector.
    pub fn for_langfuse(environment: impl Fn(&str) -> Option<String>) -> Result<Self, BadOption> {
        let key = |name: &str| {
            let missing = || BadOption::new("sink", format!("langfuse needs a key in {name}"));
            environment(name)
                .filter(|key| !key.trim().is_empty())
                .ok_or_else(missing)
        };
        // The exporter adds these headers to every request: the keys of one collector must not
        // reach another.
        for name in [
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
            "OTEL_EXPORTER_OTLP_HEADERS",
        ] {
            if environment(name).is_some() {
                return Err(BadOption::new(
                    "sink",
                    format!("{name} is set and would be sent to Langfuse; unset it"),
                ));
            }
        }
        let keys = format!(
            "{}:{}",
            key("LANGFUSE_PUBLIC_KEY")?,
            key("LANGFUSE_SECRET_KEY")?
        );
        let base = environment("LANGFUSE_BASE_URL")
            .unwrap_or_else(|| "https://cloud.langfuse.com".to_owned());
        Ok(Self {
            endpoint: Some(format!(
                "{}/api/public/otel/v1/traces",
                base.trim_end_matches('/')
            )),
            headers: BTreeMap::from([(
                "authorization".to_owned(),
                format!("Basic {}", STANDARD.encode(keys)),
            )]),
            ..Self::default()
        })
    }

    /// Rejects an invalid address or header.
    pub(crate) fn validate(&self) -> Result<(), BadOption> {
        if let Some(endpoint) = &self.endpoint {
            let web = reqwest::Url::parse(endpoint)
                .is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
            if !web {
                return Err(BadOption::new(
                    "endpoint",
                    "is not an address such as http://localhost:4318/v1/traces",
                ));
            }
        }
        for (name, value) in &self.headers {
            if name.parse::<HeaderName>().is_err() || value.parse::<HeaderValue>().is_err() {
                return Err(BadOption::new(
                    "headers",
                    format!("{name:?} is not a valid header"),
                ));
            }
        }
        Ok(())
    }

    /// Checks whether the connection is unencrypted and so needs no certificates.
    fn is_unencrypted(&self) -> bool {
        let variable = |name| env::var(name).ok().filter(|address| !address.is_empty());
        let address = self
            .endpoint
            .clone()
            .or_else(|| variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"));
        let address = address.or_else(|| variable("OTEL_EXPORTER_OTLP_ENDPOINT"));
        address.is_none_or(|address| !address.to_ascii_lowercase().starts_with("https:"))
    }

    /// Builds the exporter. It must not run on an async thread.
    pub(crate) fn build_exporter(&self) -> Result<SpanExporter, SinkError> {
        // Fails if the program has already installed a TLS provider; that one stays.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::blocking::Client::builder()
            .timeout(self.timeout)
            .tcp_nodelay(true)
            // A redirect could carry the secret headers to another host.
            .redirect(reqwest::redirect::Policy::none());
        // Otherwise a machine without certificates could not even reach a local collector.
        let client = if self.is_unencrypted() {
            client.tls_certs_only([])
        } else {
            client
        };
        let client = client
            .build()
            .map_err(|error| SinkError::new(error.to_string()))?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(self.timeout)
            .with_headers(self.headers.clone().into_iter().collect());
        let exporter = match &self.endpoint {
            Some(endpoint) => exporter.with_endpoint(endpoint),
            None => exporter,
        };
        let mut exporter = exporter
            .build()
            .map_err(|error| SinkError::new(error.to_string()))?;
        exporter.set_resource(&self.otel_resource());
        Ok(exporter)
    }

    /// Returns the resource with the service name.
    fn otel_resource(&self) -> Resource {
        let named = env::var("OTEL_SERVICE_NAME").is_ok_and(|name| !name.is_empty());
        match &self.service_name {
            Some(name) => Resource::builder().with_service_name(name.clone()).build(),
            None if named => Resource::builder().build(),
            None => Resource::builder().with_service_name("toolgate").build(),
        }
    }
}

impl fmt::Debug for OtlpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers contain keys, and `{:?}` ends up in logs.
        let names: Vec<&String> = self.headers.keys().collect();
        f.debug_struct("OtlpSettings")
            .field("endpoint", &self.endpoint)
            .field("headers", &names)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn langfuse_uses_the_keys_of_the_environment_and_rejects_headers_for_other_collectors() {
        let langfuse = |variables: &[(&str, &str)]| {
            let find = |name: &str| {
                variables
                    .iter()
                    .find(|(known, _)| *known == name)
                    .map(|(_, v)| (*v).to_owned())
            };
            OtlpSettings::for_langfuse(find)
        };
        let keys = [("LANGFUSE_PUBLIC_KEY", "pk"), ("LANGFUSE_SECRET_KEY", "sk")];
        let settings = langfuse(&keys).expect("keys are there");
        assert_eq!(
            settings.endpoint.as_deref(),
            Some("https://cloud.langfuse.com/api/public/otel/v1/traces")
        );
        assert_eq!(settings.headers["authorization"], "Basic cGs6c2s=");
        assert!(!format!("{settings:?}").contains("cGs6c2s="));
        assert!(
            langfuse(&keys[..1])
                .expect_err("a key is missing")
                .problem
                .contains("LANGFUSE_SECRET_KEY")
        );
        let foreign = [keys[0], keys[1], ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=1")];
        assert!(langfuse(&foreign).is_err());
    }
}
