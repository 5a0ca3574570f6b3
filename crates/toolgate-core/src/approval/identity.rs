//! Who decides, and how that is known.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{Digest, Principal};

/// An approver, and how it was established who they are.
///
/// A bare name converts to a *claimed* identity. It is enough for a request that anyone may decide
/// on, and never counts where a quorum or a list of approvers is required.
///
/// ```
/// use toolgate_core::{ApproverIdentity, IdentitySource};
/// let claimed = ApproverIdentity::from("ann");
/// assert!(!claimed.is_established());
/// let ann = ApproverIdentity::new("ann", IdentitySource::AuthenticatedToken);
/// assert!(ann.is_established() && ann.is_same_person(&claimed));
/// ```
// Fields are in the order of canonical JSON, so that a receipt is written in one pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ApproverIdentity {
    /// The approver's name.
    #[serde(rename = "by")]
    pub name: Principal,
    /// Another name that the approver gave. It is recorded and counts for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_as: Option<Principal>,
    /// How the name was established.
    #[serde(default, skip_serializing_if = "IdentitySource::is_claimed")]
    pub established: IdentitySource,
}

/// How the identity of an approver was established.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum IdentitySource {
    /// It was not: the name is what the approver says.
    #[default]
    Claimed,
    /// The operating system says which account runs the process.
    LocalAccount {
        /// The number of the account.
        uid: u32,
        /// The name of the machine.
        host: String,
    },
    /// The approver presented a token that the program has verified.
    AuthenticatedToken,
    /// An identity provider has authenticated the approver.
    IdentityProvider {
        /// The provider.
        issuer: String,
    },
}

impl IdentitySource {
    /// Checks whether nothing but a claim supports the identity.
    pub const fn is_claimed(&self) -> bool {
        matches!(self, Self::Claimed)
    }
}

impl ApproverIdentity {
    /// Creates the identity of an approver whose name was established in this way.
    pub fn new(name: impl Into<Principal>, established: IdentitySource) -> Self {
        Self {
            name: name.into(),
            established,
            claimed_as: None,
        }
    }

    /// Adds the name that the approver gave, as a claim beside the established one.
    pub fn claiming(mut self, name: Option<Principal>) -> Self {
        self.claimed_as = name;
        self
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        self.name.as_str()
    }

    /// Checks whether more than a claim supports the identity, and it has a name.
    pub fn is_established(&self) -> bool {
        !self.established.is_claimed() && !self.as_str().trim().is_empty()
    }

    /// Checks whether two identities are one person: the same name, whatever its spelling and
    /// however it was established, or the same account under two names.
    pub fn is_same_person(&self, other: &Self) -> bool {
        let same_account = match (&self.established, &other.established) {
            (IdentitySource::LocalAccount { .. }, IdentitySource::LocalAccount { .. }) => {
                self.established == other.established
            }
            _ => false,
        };
        same_account || self.has_name(&other.name)
    }

    /// Checks whether the approver has this name: capital letters do not make another person.
    pub(crate) fn has_name(&self, name: &Principal) -> bool {
        normalize_name(self.as_str()) == normalize_name(name.as_str())
    }

    /// Returns the text that stands for this person in the key of a vote.
    pub(crate) fn person_key(&self) -> String {
        match &self.established {
            IdentitySource::Claimed => format!("claimed:{}", normalize_name(self.as_str())),
            IdentitySource::LocalAccount { uid, host } => {
                format!("account:{uid}@{}", normalize_name(host))
            }
            IdentitySource::AuthenticatedToken | IdentitySource::IdentityProvider { .. } => {
                format!("name:{}", normalize_name(self.as_str()))
            }
        }
    }
}

fn normalize_name(name: &str) -> String {
    let plain = name.trim().to_lowercase();
    // Bounded, because the name becomes part of a record key and the approver may choose it.
    if plain.len() > 128 {
        Digest::of_bytes(plain.as_bytes()).to_string()
    } else {
        plain
    }
}

impl From<Principal> for ApproverIdentity {
    fn from(name: Principal) -> Self {
        Self::new(name, IdentitySource::Claimed)
    }
}

impl From<&Principal> for ApproverIdentity {
    fn from(name: &Principal) -> Self {
        name.clone().into()
    }
}

impl From<&str> for ApproverIdentity {
    fn from(name: &str) -> Self {
        Principal::from(name).into()
    }
}

impl From<String> for ApproverIdentity {
    fn from(name: String) -> Self {
        Self::from(name.as_str())
    }
}

impl fmt::Display for ApproverIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

/// An identity as it is stored. Records of earlier versions have a bare name, which counts as
/// claimed: how it was established was not recorded.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredIdentity {
    Name(Principal),
    Full {
        by: Principal,
        #[serde(default)]
        established: IdentitySource,
        #[serde(default)]
        claimed_as: Option<Principal>,
    },
}

impl<'de> Deserialize<'de> for ApproverIdentity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match StoredIdentity::deserialize(deserializer)? {
            StoredIdentity::Name(name) => name.into(),
            StoredIdentity::Full {
                by,
                established,
                claimed_as,
            } => Self::new(by, established).claiming(claimed_as),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn account(name: &str, uid: u32, host: &str) -> ApproverIdentity {
        let host = host.to_owned();
        ApproverIdentity::new(name, IdentitySource::LocalAccount { uid, host })
    }

    #[test]
    fn a_stored_name_of_an_earlier_version_is_a_claim() {
        let read = |value| serde_json::from_value::<ApproverIdentity>(value);
        assert_eq!(read(json!("ann")).expect("a name"), "ann".into());
        assert_eq!(read(json!({ "by": "ann" })).expect("a name"), "ann".into());
        assert!(read(json!({ "by": "ann", "established": { "how": "trust me" } })).is_err());
        let full = account("ann", 7, "pc").claiming(Some("bob".into()));
        let text = serde_json::to_value(&full).expect("plain");
        assert_eq!(read(text).expect("as written"), full);
    }

    #[test]
    fn a_person_is_the_same_under_every_name_of_the_account_and_every_source_of_the_name() {
        let ann = account("ann", 1000, "pc");
        let token = |name: &str| ApproverIdentity::new(name, IdentitySource::AuthenticatedToken);
        let issuer = "login".to_owned();
        let provided = ApproverIdentity::new("ann", IdentitySource::IdentityProvider { issuer });
        for same in [
            account("bob", 1000, "pc"),
            account("Ann ", 1001, "pc"),
            account("ANN", 5, "server"),
            token(" ann"),
            provided,
            ann.clone().claiming(Some("carol".into())),
        ] {
            assert!(
                ann.is_same_person(&same) && same.is_same_person(&ann),
                "{same:?}"
            );
        }
        for other in [
            account("bob", 1001, "pc"),
            account("bob", 1000, "server"),
            token("bob"),
        ] {
            assert!(!ann.is_same_person(&other), "{other:?}");
        }
    }
}
