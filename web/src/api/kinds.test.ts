import { describe, expect, it } from 'vitest';

import { addressOf } from './kinds';

describe('the address of a source', () => {
  it('is its URL, or of a bucket its server and name', () => {
    expect(addressOf({ url: 'oci://registry.example/app' })).toBe('oci://registry.example/app');
    expect(addressOf({ endpoint: 'minio.example:9000', bucketName: 'apps' })).toBe('minio.example:9000/apps');
    expect(addressOf({ endpoint: 'https://a.blob.example/', bucketName: 'apps' })).toBe(
      'https://a.blob.example/apps',
    );
    expect(addressOf({})).toBe('');
    expect(addressOf(undefined)).toBe('');
  });
});
