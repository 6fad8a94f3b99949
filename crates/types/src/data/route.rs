//! Which partition a key belongs to.
//!
//! The hash sees the encoded bytes of the first `partition_by` columns of the key, so rows alike in these lie
//! together. Name and seed are part of the table's record: they can never change under stored rows.

use super::key::{KeyError, columns_length};
use super::schema::Schema;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The name of the hash, as a table's record has it.
pub const HASH_NAME: &str = "xxh3-64";

/// The bytes of the first `partition_by` columns of an encoded key, or of a prefix that has at least these.
pub fn partition_key<'a>(schema: &Schema, key: &'a [u8]) -> Result<&'a [u8], KeyError> {
    Ok(&key[..columns_length(key, schema.partition_by())?])
}

/// The hash of what [`partition_key`] gave.
pub fn hash_key(partition_key: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(partition_key, seed)
}

/// The partition, from 0 to `count` - 1: each has an equal share of the hashes, in one piece.
pub fn partition_of(hash: u64, count: u32) -> u32 {
    assert!(count > 0, "a table has at least one partition");
    ((u128::from(hash) * u128::from(count)) >> 64) as u32
}

/// The partition of an encoded key, or of a prefix that has at least the columns that are hashed.
pub fn route_key(schema: &Schema, key: &[u8], seed: u64, count: u32) -> Result<u32, KeyError> {
    Ok(partition_of(hash_key(partition_key(schema, key)?, seed), count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Column, ColumnType, Value, encode_key, encode_key_prefix};

    fn schema() -> Schema {
        let columns = vec![
            Column::new("price", ColumnType::Decimal),
            Column::new("name", ColumnType::Text),
            Column::new("at", ColumnType::Timestamp),
        ];
        Schema::new(columns, &["price", "name", "at"], 2, false).expect("valid")
    }

    fn key(price: &str, name: &str, at: i64) -> Vec<Value> {
        vec![Value::Decimal(price.parse().expect("decimal")), name.into(), Value::Timestamp(at)]
    }

    #[test]
    fn rows_alike_in_the_first_columns_lie_together() {
        let schema = schema();
        for price in ["-1.5", "0", "0.001", "99999999999"] {
            for name in ["", "a", "\0", "\0\0\u{1}"] {
                let prefix = encode_key_prefix(&schema, &key(price, name, 0)[..2]).expect("encodes");
                let one = encode_key(&schema, &key(price, name, 1)).expect("encodes");
                assert_eq!(partition_key(&schema, &one), Ok(&prefix[..]));
                assert_eq!(route_key(&schema, &one, 7, 16), route_key(&schema, &prefix, 7, 16));
            }
        }
    }

    #[test]
    fn too_short_a_prefix_is_refused() {
        let schema = schema();
        let prefix = encode_key_prefix(&schema, &key("1", "a", 0)[..1]).expect("encodes");
        assert!(partition_key(&schema, &prefix).is_err());
        assert!(partition_key(&schema, &[0x10, 1]).is_err());
        assert!(partition_key(&schema, &[0xee]).is_err());
    }

    /// Stored rows lie where the hash put them: it must not change by accident.
    #[test]
    fn the_hash_stays_as_it_is() {
        assert_eq!(hash_key(b"", 0), 0x2d06_8005_38d3_94c2);
        assert_ne!(hash_key(b"", 0), hash_key(b"", 1));
    }

    #[test]
    fn partitions_share_the_hashes() {
        for count in [1, 2, 3, 7, 64] {
            assert_eq!(partition_of(0, count), 0);
            assert_eq!(partition_of(u64::MAX, count), count - 1);
        }
        let mut rows = [0u32; 8];
        for number in 0u64..8000 {
            rows[partition_of(hash_key(&number.to_be_bytes(), 3), 8) as usize] += 1;
        }
        assert!(rows.iter().all(|count| (850..1150).contains(count)), "{rows:?}");
    }
}
