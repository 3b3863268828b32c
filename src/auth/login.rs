//! Logins: who can show something else than a token gets one.

#[allow(dead_code, unused_imports, reason = "the methods that call it come next")]
mod verifier;
