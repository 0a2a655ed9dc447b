// Writes the compressed forms of each built file beside it: the hub sends the smallest that a browser takes.
import { readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

const dist = new URL('../dist', import.meta.url).pathname;
rmSync(join(dist, '.vite'), { recursive: true, force: true });
for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || !/\.(html|js|css|svg|txt)$/.test(entry.name)) continue;
  const path = join(entry.parentPath, entry.name);
  const plain = readFileSync(path);
  const brotli = brotliCompressSync(plain, {
    params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY },
  });
  for (const [extension, packed] of [
    ['br', brotli],
    ['gz', gzipSync(plain, { level: 9 })],
  ]) {
    if (packed.length < plain.length * 0.9) writeFileSync(`${path}.${extension}`, packed);
  }
}
