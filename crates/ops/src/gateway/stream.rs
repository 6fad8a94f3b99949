//! The connection's bytes. Reads come back a few times a second without any, so that Ctrl-C is noticed.

use super::place::Encryption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme, StreamOwned,
};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The longest a read may wait for something to come.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long a node may take to answer the question for encryption, and the handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// A connection.
pub(super) enum Stream {
    Plain(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Connects to a host, and encrypts as wanted. The error is a sentence.
    pub fn open(host: &str, encryption: &Encryption, within: Duration) -> Result<Stream, String> {
        let said = |error: io::Error| format!("{host}: {error}");
        let addresses: Vec<SocketAddr> = host.to_socket_addrs().map_err(said)?.collect();
        let mut last = Err(format!("{host}: no such host"));
        for address in addresses {
            last = TcpStream::connect_timeout(&address, within).map_err(said);
            if last.is_ok() {
                break;
            }
        }
        let stream = last?;
        stream.set_nodelay(true).map_err(said)?;
        stream.set_read_timeout(Some(HANDSHAKE)).map_err(said)?;
        let stream = encrypt(stream, host, encryption)?;
        stream.socket().set_read_timeout(Some(POLL_INTERVAL)).map_err(said)?;
        Ok(stream)
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Encrypted(stream) => &stream.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Encrypted(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Encrypted(stream) => stream.flush(),
        }
    }
}

fn encrypt(mut stream: TcpStream, host: &str, encryption: &Encryption) -> Result<Stream, String> {
    if *encryption == Encryption::Never {
        return Ok(Stream::Plain(stream));
    }
    let said = |error: io::Error| format!("{host}: {error}");
    let mut request = bytes::BytesMut::new();
    postgres_protocol::message::frontend::ssl_request(&mut request);
    stream.write_all(&request).map_err(said)?;
    let mut answer = [0];
    stream.read_exact(&mut answer).map_err(said)?;
    match (answer[0], encryption) {
        (b'S', _) => {}
        (b'N', Encryption::IfPossible) => return Ok(Stream::Plain(stream)),
        (b'N', _) => return Err(format!("{host} does not encrypt: it has no sql.tls_cert_file")),
        _ => return Err(format!("{host} does not speak PostgreSQL's protocol")),
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']).to_string();
    let name = ServerName::try_from(name).map_err(|error| format!("{host}: {error}"))?;
    let config = config(encryption)?;
    let connection =
        ClientConnection::new(Arc::new(config), name).map_err(|error| format!("{host}: {error}"))?;
    let mut encrypted = StreamOwned::new(connection, stream);
    while encrypted.conn.is_handshaking() {
        encrypted.conn.complete_io(&mut encrypted.sock).map_err(|error| format!("{host}: TLS: {error}"))?;
    }
    Ok(Stream::Encrypted(Box::new(encrypted)))
}

fn config(encryption: &Encryption) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(match encryption {
        Encryption::Verified(file) => builder.with_root_certificates(roots(file)?).with_no_client_auth(),
        _ => {
            let anybody = Arc::new(Anybody(provider));
            builder.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth()
        }
    })
}

fn roots(file: &Path) -> Result<RootCertStore, String> {
    let wrong = |why: String| format!("sslrootcert {}: {why}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(error.to_string()))? {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() { Err(wrong("no certificate is in it".into())) } else { Ok(roots) }
}

/// Takes any certificate, as `sslmode=require` does: nobody reads along, but who is at the other end is not
/// known.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
