import { defineConfig } from 'vitest/config';

// Run by tests/tests/e2e/dashboard.rs, which sets a whole fleet up and says where it is.
export default defineConfig({
  test: {
    environment: 'node',
    include: ['e2e/**/*.e2e.ts'],
    fileParallelism: false,
    testTimeout: 240_000,
    hookTimeout: 60_000,
    expect: { poll: { timeout: 15_000 } },
  },
});
