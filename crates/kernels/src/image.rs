// SPDX-License-Identifier: GPL-2.0-only
//! What is inside a bzImage: its release, and the ELF file that it unpacks at boot.

use std::io::Read;

// Offsets in the x86 boot protocol's setup header.
const SETUP_SECTS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const KERNEL_VERSION: usize = 0x20e;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;

/// Bytes that are enough for [`release`].
pub(crate) const HEAD: u64 = 64 << 10;

/// `uname -r` of an image, from its first [`HEAD`] bytes.
pub(crate) fn release(image: &[u8]) -> Option<String> {
    if image.get(MAGIC..MAGIC + 4)? != b"HdrS" {
        return None;
    }
    let pointer = image.get(KERNEL_VERSION..KERNEL_VERSION + 2)?.try_into().ok()?;
    // The pointer counts from the end of the first sector.
    let text = image.get(usize::from(u16::from_le_bytes(pointer)) + 0x200..)?;
    let word = text.split(|b| *b == 0 || *b == b' ').next()?;
    let word = std::str::from_utf8(word).ok()?;
    word.starts_with(|c: char| c.is_ascii_digit()).then(|| word.to_string())
}

/// The ELF file inside a bzImage.
///
/// # Errors
/// Why it cannot be had: a sentence without its subject.
pub(crate) fn payload(image: &[u8]) -> Result<Vec<u8>, String> {
    let word = |at: usize| {
        image.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, |b| u32::from_le_bytes(b) as usize)
    };
    if image.get(MAGIC..MAGIC + 4) != Some(b"HdrS") {
        return Err("its image is no bzImage (what is needed is the file that boots, such as vmlinuz)".into());
    }
    let sectors = match image[SETUP_SECTS] {
        0 => 4,
        n => usize::from(n),
    };
    let start = (sectors + 1) * 512 + word(PAYLOAD_OFFSET);
    let bytes = image.get(start..start + word(PAYLOAD_LENGTH)).ok_or("its image is cut short")?;
    // The four bytes behind the stream are the length of what comes out, for all formats but gzip, which ends so
    // by itself. The xz decoder takes them for a damaged second stream.
    let mut out = Vec::new();
    let done = match bytes {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => ruzstd::decoding::StreamingDecoder::new(bytes)
            .map_err(|e| e.to_string())
            .and_then(|mut d| d.read_to_end(&mut out).map_err(|e| e.to_string())),
        [0xfd, b'7', b'z', b'X', .., _, _, _, _] => xz2::read::XzDecoder::new(&bytes[..bytes.len() - 4])
            .read_to_end(&mut out)
            .map_err(|e| e.to_string()),
        [0x1f, 0x8b, ..] => {
            flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).map_err(|e| e.to_string())
        }
        _ => {
            return Err(
                "its image is compressed in a way that is not known here (known: zstd, xz, gzip)".into()
            );
        }
    };
    done.map_err(|e| format!("its image cannot be decompressed: {e}"))?;
    Ok(out)
}

/// The configuration that CONFIG_IKCONFIG puts into the kernel itself.
pub(crate) fn embedded_config(elf: &[u8]) -> Option<String> {
    let mark = b"IKCFG_ST";
    let at = elf.windows(mark.len()).position(|w| w == mark)? + mark.len();
    let mut text = String::new();
    flate2::read::GzDecoder::new(&elf[at..]).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn bzimage(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024];
        image[SETUP_SECTS] = 1;
        image[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        image[KERNEL_VERSION..KERNEL_VERSION + 2].copy_from_slice(&0x100u16.to_le_bytes());
        image[0x300..0x30c].copy_from_slice(b"1.2.3-x (me)");
        image[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4].copy_from_slice(&16u32.to_le_bytes());
        image[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend([0; 16]);
        image.extend(payload);
        image
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    }

    #[test]
    fn payloads_come_out_of_their_images() {
        let mut xz = xz2::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(b"kernel").unwrap();
        let mut xz = xz.finish().unwrap();
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let mut zstd = ruzstd::encoding::compress_to_vec(&b"kernel"[..], level);
        // The length that the kernel's build appends.
        xz.extend(6u32.to_le_bytes());
        zstd.extend(6u32.to_le_bytes());
        for packed in [gzip(b"kernel"), xz, zstd] {
            assert_eq!(payload(&bzimage(&packed)).unwrap(), b"kernel");
        }
    }

    #[test]
    fn bad_images_are_told_apart() {
        assert!(payload(b"short").unwrap_err().contains("no bzImage"));
        assert!(payload(&bzimage(b"????")).unwrap_err().contains("not known here"));
        let whole = bzimage(&gzip(b"kernel"));
        assert!(payload(&whole[..whole.len() - 1]).unwrap_err().contains("cut short"));
        let mut spoilt = gzip(b"kernel");
        spoilt.truncate(12);
        assert!(payload(&bzimage(&spoilt)).unwrap_err().contains("cannot be decompressed"));
    }

    #[test]
    fn images_say_their_release() {
        assert_eq!(release(&bzimage(b"")).as_deref(), Some("1.2.3-x"));
        assert_eq!(release(b"short"), None);
    }

    #[test]
    fn embedded_configurations_are_read() {
        let mut elf = b"code IKCFG_ST".to_vec();
        elf.extend(gzip(b"CONFIG_HZ=250\n"));
        elf.extend(b"IKCFG_ED more code");
        assert_eq!(embedded_config(&elf).as_deref(), Some("CONFIG_HZ=250\n"));
        assert_eq!(embedded_config(b"nothing"), None);
    }
}
