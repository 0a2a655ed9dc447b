import react from '@vitejs/plugin-react';
import { defineConfig } from 'vitest/config';

// The hub serves what comes out of this under /ui/. Nothing is inlined: its policy forbids that.
export default defineConfig({
  base: '/ui/',
  plugins: [react()],
  build: {
    target: 'es2023',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    manifest: '.vite/manifest.json',
  },
  server: {
    proxy: Object.fromEntries(
      ['/api', '/apis', '/fleet'].map((path) => [
        path,
        { target: process.env.ROADSTEAD_HUB ?? 'https://127.0.0.1:7443', secure: false },
      ]),
    ),
  },
  test: {
    environment: 'jsdom',
    include: ['src/**/*.test.{ts,tsx}'],
    setupFiles: ['src/test/setup.ts'],
    restoreMocks: true,
    testTimeout: 20_000,
  },
});
