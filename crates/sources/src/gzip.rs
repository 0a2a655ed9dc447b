//! Artifacts' compression: the same bytes for the same bytes, on every machine and in every build.
//!
//! An artifact is named by the digest of what it is packed to. `flate2` compresses by whichever library is compiled into the
//! program: another crate of the tree that asks for another one would change the digest of every artifact, and a
//! library that goes by what the processor can do would make two replicas disagree. So this names its library.

use std::io::{self, Write};

use crc32fast::Hasher;
use miniz_oxide::deflate::core::{CompressorOxide, create_comp_flags_from_zip_params};
use miniz_oxide::deflate::stream::deflate;
use miniz_oxide::{MZFlush, MZStatus};

/// Magic number, deflate, no flags, no time, neither the best nor the fastest compression, and an unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// zlib's own default.
const LEVEL: i32 = 6;

/// Below zero: bare deflate, since gzip has a header of its own.
const WINDOW_BITS: i32 = -15;

/// Compresses what is written to it.
pub(crate) struct Gzip<W> {
    to: W,
    compressor: Box<CompressorOxide>,
    buffer: Vec<u8>,
    checksum: Hasher,
    /// Of what was written, as gzip counts: modulo 2^32.
    length: u32,
}

impl<W: Write> Gzip<W> {
    pub(crate) fn new(mut to: W) -> io::Result<Self> {
        to.write_all(&HEADER)?;
        let flags = create_comp_flags_from_zip_params(LEVEL, WINDOW_BITS, 0);
        Ok(Self {
            to,
            compressor: Box::new(CompressorOxide::new(flags)),
            buffer: vec![0; 32 * 1024],
            checksum: Hasher::new(),
            length: 0,
        })
    }

    /// Writes what is left, and gives back where it went.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        while self.step(&[], MZFlush::Finish)?.1 != MZStatus::StreamEnd {}
        let Self { mut to, checksum, length, .. } = self;
        to.write_all(&checksum.finalize().to_le_bytes())?;
        to.write_all(&length.to_le_bytes())?;
        Ok(to)
    }

    /// Compresses some of `input`: gives how much, and where the stream stands.
    fn step(&mut self, input: &[u8], flush: MZFlush) -> io::Result<(usize, MZStatus)> {
        let done = deflate(&mut self.compressor, input, &mut self.buffer, flush);
        let status = done.status.map_err(|_| io::Error::other("the compressor failed"))?;
        let written = self.buffer.get(..done.bytes_written).unwrap_or_default();
        self.to.write_all(written)?;
        Ok((done.bytes_consumed, status))
    }
}

impl<W: Write> Write for Gzip<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        // What its buffer has no room for it takes none of: then the next step makes some.
        let mut consumed = 0;
        while consumed == 0 {
            consumed = self.step(bytes, MZFlush::None)?.0;
        }
        let taken = bytes.get(..consumed).unwrap_or_default();
        self.checksum.update(taken);
        self.length = self.length.wrapping_add(u32::try_from(consumed).unwrap_or(u32::MAX));
        Ok(consumed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use flate2::read::GzDecoder;

    use super::Gzip;

    #[test]
    fn what_is_compressed_is_read_again_whatever_pieces_it_comes_in() {
        let text: Vec<u8> =
            (0..200_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let pack = |piece: usize| {
            let mut gzip = Gzip::new(Vec::new()).unwrap();
            text.chunks(piece).for_each(|piece| gzip.write_all(piece).unwrap());
            gzip.finish().unwrap()
        };
        let whole = pack(text.len());
        for piece in [1_000, 32 * 1024, 65_537] {
            assert_eq!(pack(piece), whole, "in pieces of {piece}");
        }
        let mut read = Vec::new();
        GzDecoder::new(whole.as_slice()).read_to_end(&mut read).unwrap();
        assert!(read == text);
        let mut empty = Vec::new();
        let nothing = Gzip::new(Vec::new()).unwrap().finish().unwrap();
        GzDecoder::new(nothing.as_slice()).read_to_end(&mut empty).unwrap();
        assert!(empty.is_empty());
    }
}
