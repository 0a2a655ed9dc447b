// Fails where the first page has grown: everything that index.html asks for, and what those scripts import at once, as
// gzip (most browsers get brotli, which is smaller).
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';

const LIMIT = 300 * 1024;
const dist = new URL('../dist', import.meta.url).pathname;
const size = (file) => {
  try {
    return statSync(join(dist, `${file}.gz`)).size;
  } catch {
    return statSync(join(dist, file)).size;
  }
};
const index = readFileSync(join(dist, 'index.html'), 'utf8');
const wanted = new Set(['index.html']);
for (const [, path] of index.matchAll(/(?:src|href)="\/ui\/([^"]+)"/g)) wanted.add(path);
for (const file of wanted) {
  if (!file.endsWith('.js')) continue;
  const text = readFileSync(join(dist, file), 'utf8');
  // `import("./x.js")`, the lazy ones, have a parenthesis.
  for (const [, path] of text.matchAll(/(?:from|import)\s*"\.\/([^"]+\.js)"/g)) wanted.add(`assets/${path}`);
}
let sum = 0;
for (const file of wanted) {
  sum += size(file);
  console.log(`${String(size(file)).padStart(8)} ${file}`);
}
console.log(`${String(sum).padStart(8)} bytes for the first page, of ${LIMIT} that it may have`);
if (sum > LIMIT) process.exit(1);
