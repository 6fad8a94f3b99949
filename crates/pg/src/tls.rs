//! Encryption: a certificate and its key from files, read once when the server starts.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// What a server shows to clients that ask for TLS.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

impl Tls {
    /// Reads a chain of certificates, the server's own first, and its key, both as PEM.
    ///
    /// # Errors
    ///
    /// One sentence that names the file which cannot be used.
    pub fn load(certificates: &Path, key: &Path) -> Result<Tls, String> {
        let of = |file: &Path, why: String| format!("{}: {why}", file.display());
        let chain = CertificateDer::pem_file_iter(certificates).and_then(Iterator::collect);
        let chain: Vec<CertificateDer<'static>> =
            chain.map_err(|error| of(certificates, error.to_string()))?;
        if chain.is_empty() {
            return Err(of(certificates, "no certificate is in it".into()));
        }
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| of(key, error.to_string()))?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let config = builder.with_no_client_auth().with_single_cert(chain, secret).map_err(|error| {
            format!(
                "the key in {} does not fit the certificate in {}: {error}",
                key.display(),
                certificates.display()
            )
        })?;
        Ok(Tls(Arc::new(config)))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.0.clone())
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}
