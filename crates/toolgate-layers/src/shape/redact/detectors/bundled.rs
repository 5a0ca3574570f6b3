//! The bundled list of detectors.

use super::{
    Detector, DetectorLook, SecretStrength,
    literals::{is_credential, looks_generated},
    secret_names::{is_account_name, is_npm_name},
};

macro_rules! shapes {
    ($($kind:literal $anchor:literal $shape:literal $(if $test:path)?;)*) => {
        &[$(Detector { kind: $kind, anchor: $anchor, look: shapes!(@ $shape $($test)?) }),*]
    };
    (@ $shape:literal) => { DetectorLook::Shape($shape) };
    (@ $shape:literal $test:path) => { DetectorLook::ShapeIf($shape, $test) };
}

/// Tokens that are recognised by their shape alone.
pub(super) const SHAPE_DETECTORS: &[Detector] = shapes! {
    "aws_key_id" "AKIA" r"^AKIA[0-9A-Z]{16}";
    "aws_key_id" "ASIA" r"^ASIA[0-9A-Z]{16}";
    "github_token" "ghp_" r"^ghp_[0-9A-Za-z]{20,255}";
    "github_token" "gho_" r"^gho_[0-9A-Za-z]{20,255}";
    "github_token" "ghu_" r"^ghu_[0-9A-Za-z]{20,255}";
    "github_token" "ghs_" r"^ghs_[0-9A-Za-z]{20,255}";
    "github_token" "ghr_" r"^ghr_[0-9A-Za-z]{20,255}";
    "github_token" "github_pat_" r"^github_pat_[0-9A-Za-z_]{40,255}";
    "gitlab_token" "glpat-" r"^glpat-[0-9A-Za-z_.-]{20,}";
    "gitlab_token" "gldt-" r"^gldt-[0-9A-Za-z_.-]{20,}";
    "gitlab_token" "glrt-" r"^glrt-[0-9A-Za-z_.-]{20,}";
    "gitlab_token" "glptt-" r"^glptt-[0-9a-f]{40}";
    "gitlab_token" "glagent-" r"^glagent-[0-9A-Za-z_.-]{20,}";
    "gitlab_token" "glsoat-" r"^glsoat-[0-9A-Za-z_.-]{20,}";
    "docker_token" "dckr_pat_" r"^dckr_pat_[0-9A-Za-z_-]{16,}";
    "sentry_token" "sntryu_" r"^sntryu_[0-9a-f]{64}";
    "sentry_token" "sntrys_" r"^sntrys_[0-9A-Za-z_+/=-]{40,}";
    "grafana_token" "glsa_" r"^glsa_[0-9A-Za-z]{32}_[0-9A-Fa-f]{8}";
    "npm_token" "npm_" r"^npm_[0-9A-Za-z]{36}";
    "pypi_token" "pypi-AgEI" r"^pypi-AgEI[0-9A-Za-z_-]{50,}";
    "slack_token" "xoxb-" r"^xoxb-[0-9A-Za-z-]{10,}";
    "slack_token" "xoxp-" r"^xoxp-[0-9A-Za-z-]{10,}";
    "slack_token" "xoxa-" r"^xoxa-[0-9A-Za-z-]{10,}";
    "slack_token" "xoxr-" r"^xoxr-[0-9A-Za-z-]{10,}";
    "slack_token" "xoxs-" r"^xoxs-[0-9A-Za-z-]{10,}";
    "slack_token" "xapp-" r"^xapp-\d-[0-9A-Za-z-]{20,}";
    "slack_webhook" "hooks.slack.com/services/" r"^hooks\.slack\.com/services/T[0-9A-Z]+/B[0-9A-Z]+/[0-9A-Za-z]{16,}";
    "discord_webhook" "discord.com/api/webhooks/" r"^discord\.com/api/webhooks/\d+/[0-9A-Za-z_-]{30,}";
    "stripe_key" "sk_live_" r"^sk_live_[0-9A-Za-z]{16,}";
    "stripe_key" "sk_test_" r"^sk_test_[0-9A-Za-z]{16,}";
    "stripe_key" "rk_live_" r"^rk_live_[0-9A-Za-z]{16,}";
    "stripe_key" "whsec_" r"^whsec_[0-9A-Za-z]{24,}";
    "anthropic_key" "sk-ant-" r"^sk-ant-[0-9A-Za-z_-]{20,}";
    "openai_key" "sk-" r"^sk-[0-9A-Za-z_-]{20,}" if looks_generated;
    "google_key" "AIza" r"^AIza[0-9A-Za-z_-]{35}";
    "google_token" "ya29." r"^ya29\.[0-9A-Za-z_.-]{20,}";
    "google_secret" "GOCSPX-" r"^GOCSPX-[0-9A-Za-z_-]{20,}";
    "jwt" "eyJ" r"^eyJ[0-9A-Za-z_-]{8,}(?:\.[0-9A-Za-z_-]{4,}){2,4}";
    "sendgrid_key" "SG." r"^SG\.[0-9A-Za-z_-]{16,}\.[0-9A-Za-z_-]{16,}";
    "huggingface_token" "hf_" r"^hf_[0-9A-Za-z]{30,}";
    "digitalocean_token" "dop_v1_" r"^dop_v1_[0-9a-f]{64}";
    "shopify_token" "shpat_" r"^shpat_[0-9a-fA-F]{32}";
    "mailgun_key" "key-" r"^key-[0-9a-f]{32}\b";
    "vault_token" "hvs." r"^hvs\.[0-9A-Za-z_-]{20,}";
    "databricks_token" "dapi" r"^dapi[0-9a-f]{32}\b";
    "groq_key" "gsk_" r"^gsk_[0-9A-Za-z]{30,}";
    "xai_key" "xai-" r"^xai-[0-9A-Za-z]{40,}";
    "replicate_token" "r8_" r"^r8_[0-9A-Za-z]{30,}";
    "linear_key" "lin_api_" r"^lin_api_[0-9A-Za-z]{30,}";
    "notion_token" "ntn_" r"^ntn_[0-9A-Za-z]{30,}";
    "postman_key" "PMAK-" r"^PMAK-[0-9a-f]{24}-[0-9a-f]{34}";
    "age_key" "AGE-SECRET-KEY-1" r"^AGE-SECRET-KEY-1[0-9A-Z]{50,}";
    "bearer_token" "bearer" r"^(?i:bearer)[:\s]\s*[0-9A-Za-z._~+/=-]{8,}" if is_credential;
    "basic_auth" "basic" r"^(?i:basic)\s+[0-9A-Za-z+/]{12,}={0,2}" if is_credential;
};

macro_rules! others {
    ($($kind:literal $look:expr => $($anchor:literal)*;)*) => {
        &[$($(Detector { kind: $kind, anchor: $anchor, look: $look }),*),*]
    };
}

/// Secrets that are recognised by their context.
pub(super) const CONTEXT_DETECTORS: &[Detector] = others! {
    "private_key" DetectorLook::Pem => "-----BEGIN";
    "url_password" DetectorLook::UserInfo => "://" ":\\/\\/";
    "cookie" DetectorLook::Cookie => "cookie";
    "password" DetectorLook::Assigned(SecretStrength::Any) => "password" "passwd" "passphrase" "pwd" "client_secret" "clientsecret"
        "secret_key" "secretkey" "secret_access_key" "secretaccesskey" "accountkey" "sharedaccesskey";
    "password" DetectorLook::NamedBy(is_npm_name) => "_authtoken" "_auth=" "_auth:" "_auth\"" "_auth'" "_auth ";
    "password" DetectorLook::NamedBy(is_account_name) => "_pass=" "_pass:" "_pass\"" "_pass'" "_pass ";
    "password" DetectorLook::Group(CURL_USER) => "curl";
    "password" DetectorLook::Group(NETRC_ENTRY) => "machine";
    "secret" DetectorLook::Assigned(SecretStrength::Random) => "secret" "token" "api_key" "apikey" "api-key" "access_key" "accesskey"
        "private_key" "privatekey" "signing_key" "encryption_key" "authorization" "credential" "auth_key"
        "x-amz-signature" "x-goog-signature";
};

/// `curl -u user:password`, on one line.
const CURL_USER: &str =
    r#"^(?i:curl)\s[^\n|;&]{0,300}?(?:-u\s*|--user[ =])["']?[^\s:"'$]{1,64}:([^\s"'$][^\s"']*)"#;

/// An entry of a `.netrc`, on one line or several.
const NETRC_ENTRY: &str = r"^(?i:machine)\s+(?:\S{0,120}\.\S{1,120}|localhost)(?:\s+(?:login|account)\s+\S{1,128}){0,2}\s+password\s+(\S+)";

/// The most words of an entry of a `.netrc` after the first.
pub(super) const NETRC_WORDS: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;
    use regex::Regex;

    #[test]
    fn every_bundled_shape_is_valid_and_begins_with_its_anchor() {
        for pattern in [CURL_USER, NETRC_ENTRY] {
            assert!(Regex::new(pattern).is_ok(), "{pattern}");
        }
        for detector in SHAPE_DETECTORS {
            let (DetectorLook::Shape(pattern) | DetectorLook::ShapeIf(pattern, _)) = detector.look
            else {
                panic!("a shape")
            };
            assert!(Regex::new(pattern).is_ok(), "{pattern}");
            let plain = pattern.replace('\\', "").replace("(?i:", "").to_lowercase();
            assert!(
                plain.starts_with(&format!("^{}", detector.anchor.to_lowercase())),
                "{pattern}"
            );
        }
    }
}
