//! Private keys of authorities in any of the three forms that tools write; the library that signs reads PKCS#8 only.
//!
//! Helm and `openssl ecparam` write SEC 1 (`EC PRIVATE KEY`), `openssl genrsa -traditional` PKCS#1 (`RSA PRIVATE KEY`).

use rcgen::KeyPair;
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};

/// `INTEGER 0`: the version of PKCS#8. RFC 5208 §5.
const VERSION: &[u8] = &[0x02, 0x01, 0x00];
/// `rsaEncryption` and its empty parameters. RFC 8017 §A.1.
const RSA: &[u8] = &[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];
/// `id-ecPublicKey` on P-256 and on P-384. RFC 5480 §2.1.1.
const CURVES: [&[u8]; 2] = [
    &[
        0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
        0x3d, 0x03, 0x01, 0x07,
    ],
    &[
        0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00,
        0x22,
    ],
];

/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const OCTET_STRING: u8 = 0x04;

/// Reads a key.
pub(super) fn key_pair(pem: &[u8]) -> Result<KeyPair, rcgen::Error> {
    let unreadable = |_| rcgen::Error::CouldNotParseKeyPair;
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(unreadable)?;
    match &key {
        PrivateKeyDer::Sec1(sec1) => {
            let mut wrapped = CURVES
                .map(|curve| wrap(curve, sec1.secret_sec1_der()))
                .into_iter();
            // The library refuses a key that is not of the curve.
            wrapped
                .find_map(|pkcs8| KeyPair::try_from(pkcs8.as_slice()).ok())
                .ok_or(rcgen::Error::CouldNotParseKeyPair)
        }
        PrivateKeyDer::Pkcs1(pkcs1) => {
            KeyPair::try_from(wrap(RSA, pkcs1.secret_pkcs1_der()).as_slice())
        }
        PrivateKeyDer::Pkcs8(_) | _ => KeyPair::try_from(&key),
    }
}

/// A key of an algorithm as PKCS#8.
fn wrap(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    let content = [
        VERSION.to_vec(),
        element(SEQUENCE, algorithm),
        element(OCTET_STRING, key),
    ];
    element(SEQUENCE, &content.concat())
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    let length = content.len().to_be_bytes();
    let length: Vec<_> = length.into_iter().skip_while(|byte| *byte == 0).collect();
    match (length.as_slice(), content.len()) {
        (_, 0..=127) => bytes.extend(length.first().or(Some(&0))),
        (long, _) => {
            bytes.push(0x80 | u8::try_from(long.len()).expect("invariant: at most 8 bytes"));
            bytes.extend(long);
        }
    }
    bytes.extend(content);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is inside of a key in PKCS#8, as Helm and openssl write it.
    fn sec1(pair: &KeyPair, curve: &[u8]) -> String {
        let pkcs8 = pair.serialize_der();
        let mut windows = pkcs8.windows(curve.len());
        let after = windows.position(|window| window == curve).unwrap() + curve.len();
        let header = if pkcs8[after + 1] < 128 { 2 } else { 3 };
        let key = data_encoding::BASE64.encode(&pkcs8[after + header..]);
        format!("-----BEGIN EC PRIVATE KEY-----\n{key}\n-----END EC PRIVATE KEY-----\n")
    }

    #[test]
    fn keys_as_helm_and_openssl_write_them_sign() {
        for (curve, algorithm) in CURVES.into_iter().zip([
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &rcgen::PKCS_ECDSA_P384_SHA384,
        ]) {
            let pair = KeyPair::generate_for(algorithm).unwrap();

            let read = key_pair(sec1(&pair, curve).as_bytes()).unwrap();

            assert_eq!(read.public_key_raw(), pair.public_key_raw());
            assert!(read.is_compatible(algorithm));
        }
    }

    #[test]
    fn a_key_in_pkcs8_is_read_as_before_and_nonsense_is_refused() {
        let pair = KeyPair::generate().unwrap();

        let read = key_pair(pair.serialize_pem().as_bytes()).unwrap();

        assert_eq!(read.public_key_raw(), pair.public_key_raw());
        assert!(key_pair(b"nothing").is_err());
    }
}
