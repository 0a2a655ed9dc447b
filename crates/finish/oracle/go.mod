module roadstead.dev/finish-oracle

go 1.27.0

require (
	github.com/fluxcd/pkg/envsubst v1.9.0
	sigs.k8s.io/yaml v1.6.0
)

require go.yaml.in/yaml/v2 v2.4.2 // indirect
