//! Passwords: SCRAM-SHA-256, with the password salted once when the server starts.

use super::front::sasl_initial;
use super::{End, Link};
use crate::failure::{Failure, code};
use pgwire::api::auth::sasl::scram::{SCRAM_ITERATIONS, ScramSecret, ScramServerAuth, gen_salted_password};
use std::hash::{BuildHasher, Hasher};

/// What a password is checked against. The password itself is not kept.
pub(crate) struct Verifier {
    salt: Vec<u8>,
    salted: Vec<u8>,
}

impl Verifier {
    /// For this password, with a salt of its own.
    pub fn new(password: &str) -> Verifier {
        let salt = random_bytes();
        let salted = gen_salted_password(password, &salt, SCRAM_ITERATIONS);
        Verifier { salt, salted }
    }

    fn secret(&self) -> ScramSecret {
        ScramSecret::SaltedPassword { salt: self.salt.clone(), salted_password: self.salted.clone() }
    }
}

/// Sixteen bytes that nobody can guess: the standard library seeds its hash from the system's randomness.
fn random_bytes() -> Vec<u8> {
    let word = || std::hash::RandomState::new().build_hasher().finish().to_be_bytes();
    [word(), word()].concat()
}

/// A number that nobody can guess.
pub(crate) fn random_key() -> i32 {
    std::hash::RandomState::new().build_hasher().finish() as i32
}

/// Asks for the password and checks it. False if the client hung up. `known` is false for a user that there
/// is not: the conversation is the same, and fails at its end.
pub(crate) async fn check(
    link: &mut Link,
    verifier: &Verifier,
    user: &str,
    known: bool,
) -> Result<bool, End> {
    link.ask_password();
    link.flush().await?;
    let Some(body) = link.password().await? else { return Ok(false) };
    let (mechanism, first) = sasl_initial(body)?;
    if mechanism != "SCRAM-SHA-256" {
        return Err(Failure::protocol("client selected an invalid SASL authentication mechanism").into());
    }
    let malformed = |_| Failure::protocol("malformed SCRAM message");
    let scram = ScramServerAuth::new();
    let begun = scram.on_client_first_message_with_secret(&first, verifier.secret());
    let (challenge, waiting) = begun.map_err(malformed)?;
    link.challenge(challenge);
    link.flush().await?;
    let Some(last) = link.password().await? else { return Ok(false) };
    match waiting.on_client_final_message(&last) {
        Ok(proof) if known => {
            link.proof(proof);
            Ok(true)
        }
        Ok(_) | Err(pgwire::error::PgWireError::InvalidPassword(_)) => Err(wrong(user).into()),
        Err(_) => Err(Failure::protocol("malformed SCRAM message").into()),
    }
}

fn wrong(user: &str) -> Failure {
    Failure::new(code::BAD_PASSWORD, format!("password authentication failed for user \"{user}\"")).fatal()
}
