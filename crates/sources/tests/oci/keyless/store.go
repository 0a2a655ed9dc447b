package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

const (
	manifestKind = "application/vnd.oci.image.manifest.v1+json"
	indexKind    = "application/vnd.oci.image.index.v1+json"
	bundleKind   = "application/vnd.dev.sigstore.bundle.v0.3+json"
	simpleKind   = "application/vnd.dev.cosign.simplesigning.v1+json"
)

// The version of a chart, which is its tag.
const chart = "1.0.0"

type object = map[string]any

// A registry, and what is to be written of it.
type store struct {
	made     *fixtures
	registry string
}

func digestOf(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

func (s *store) send(method, path, kind string, data []byte) *http.Response {
	if !strings.HasPrefix(path, "http") {
		path = "http://" + s.registry + path
	}
	request := must(http.NewRequest(method, path, bytes.NewReader(data)))
	request.Header.Set("Content-Type", kind)
	answer := must(http.DefaultClient.Do(request))
	answer.Body.Close()
	if answer.StatusCode >= 300 {
		panic(fmt.Sprintf("%s %s: %s", method, path, answer.Status))
	}
	return answer
}

// Keeps bytes, and gives their descriptor.
func (s *store) blob(kind string, data []byte) object {
	digest := digestOf(data)
	s.made.Blobs[digest] = blob{kind, base64.StdEncoding.EncodeToString(data)}
	if kind != manifestKind && kind != indexKind {
		place := s.send("POST", "/v2/app/blobs/uploads/", "application/octet-stream", nil).Header.Get("Location")
		join := "?"
		if strings.Contains(place, "?") {
			join = "&"
		}
		s.send("PUT", place+join+"digest="+digest, "application/octet-stream", data)
	} else {
		s.send("PUT", "/v2/app/manifests/"+digest, kind, data)
	}
	return object{"mediaType": kind, "digest": digest, "size": len(data)}
}

func (s *store) manifest(kind string, content object) object {
	content["schemaVersion"], content["mediaType"] = 2, kind
	return s.blob(kind, must(json.Marshal(content)))
}

func (s *store) tag(tag string, kept object) {
	digest := kept["digest"].(string)
	s.made.Tags[tag] = digest
	data := must(base64.StdEncoding.DecodeString(s.made.Blobs[digest].Data))
	s.send("PUT", "/v2/app/manifests/"+tag, kept["mediaType"].(string), data)
}

// An artifact as flux pushes one, or, where its name is a version, a chart as helm does.
func (s *store) image(name string) (string, []byte) {
	file, text := "app.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: keyless}\ndata: {word: "+name+"}\n"
	kinds := [2]string{"application/vnd.cncf.flux.config.v1+json", "application/vnd.cncf.flux.content.v1.tar+gzip"}
	if name == chart {
		file, text = "app/Chart.yaml", "apiVersion: v2\nname: app\nversion: "+name+"\n"
		kinds = [2]string{"application/vnd.cncf.helm.config.v1+json", "application/vnd.cncf.helm.chart.content.v1.tar+gzip"}
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	files := tar.NewWriter(zip)
	check(files.WriteHeader(&tar.Header{Name: file, Mode: 0o644, Size: int64(len(text))}))
	must(files.Write([]byte(text)))
	check(files.Close())
	check(zip.Close())
	config := s.blob(kinds[0], []byte("{}"))
	layer := s.blob(kinds[1], packed.Bytes())
	kept := s.manifest(manifestKind, object{"config": config, "layers": []object{layer}})
	s.tag(name, kept)
	digest := kept["digest"].(string)
	return digest, must(base64.StdEncoding.DecodeString(s.made.Blobs[digest].Data))
}

// Lays a bundle where an image's referrers are listed.
func (s *store) putBundle(image string, size int, bundle []byte) {
	layer := s.blob(bundleKind, bundle)
	config := s.blob("application/vnd.oci.empty.v1+json", []byte("{}"))
	kept := s.manifest(manifestKind, object{
		"config": config, "layers": []object{layer}, "artifactType": bundleKind,
		"subject": object{"mediaType": manifestKind, "digest": image, "size": size},
	})
	kept["artifactType"] = bundleKind
	list := s.manifest(indexKind, object{"manifests": []object{kept}})
	s.tag("sha256-"+strings.TrimPrefix(image, "sha256:"), list)
}

// Lays a signature of the old form at its tag.
func (s *store) putOld(image string, payload []byte, annotations object) {
	layer := s.blob(simpleKind, payload)
	layer["annotations"] = annotations
	config := s.blob("application/vnd.oci.image.config.v1+json", []byte(`{"architecture":"","os":"","rootfs":{"type":"layers","diff_ids":["`+digestOf(payload)+`"]},"config":{}}`))
	kept := s.manifest(manifestKind, object{"config": config, "layers": []object{layer}})
	s.tag("sha256-"+strings.TrimPrefix(image, "sha256:")+".sig", kept)
}
