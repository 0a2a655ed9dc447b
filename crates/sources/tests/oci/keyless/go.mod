module roadstead.dev/keyless-fixtures

go 1.26

require (
	github.com/digitorus/timestamp v0.0.0-20231217203849-220c5c2851b7
	github.com/google/certificate-transparency-go v1.3.3
	github.com/sigstore/sigstore v1.10.8
)

require (
	github.com/digitorus/pkcs7 v0.0.0-20230713084857-e76b763bdc49 // indirect
	github.com/secure-systems-lab/go-securesystemslib v0.11.0 // indirect
	github.com/youmark/pkcs8 v0.0.0-20240726163527-a2c0da244d78 // indirect
	golang.org/x/crypto v0.50.0 // indirect
	golang.org/x/sys v0.43.0 // indirect
	golang.org/x/term v0.42.0 // indirect
)
