//! Ids as PostgreSQL keeps them: `uuid`.

use sqlx::{
    Decode, Encode, Postgres, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{
        PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueFormat, PgValueRef, types::Oid,
    },
};
use uuid::Uuid;

/// A UUID. sqlx can carry them too, but only along with its own SQLite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id(pub(super) Uuid);

const UUID: Oid = Oid(2950);
const UUID_ARRAY: Oid = Oid(2951);

impl Type<Postgres> for Id {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(UUID)
    }
}

impl PgHasArrayType for Id {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(UUID_ARRAY)
    }
}

impl Encode<'_, Postgres> for Id {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }
}

impl Decode<'_, Postgres> for Id {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        let id = match value.format() {
            PgValueFormat::Binary => Uuid::from_slice(value.as_bytes()?)?,
            PgValueFormat::Text => value.as_str()?.parse()?,
        };
        Ok(Self(id))
    }
}
