// Writes signed.json: artifacts that were signed without keys, by a Sigstore of its own: a certificate authority as Fulcio is one, a
// log of certificates, a transparency log (as Rekor v1 and v2 have entries) and an authority of timestamps. Each artifact is verified
// here by the real cosign, and what it says is written beside it. Keys, and so signatures, are others each time.
package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	issuer  = "https://token.example"
	subject = "https://git.example/app/.ci/release@refs/tags/v1"
)

// What an artifact is signed with. The zero value is how it ought to be.
type how struct {
	form      string // bundle, message or old
	mail      bool   // the subject is an e-mail address
	other     bool   // … or another name
	onlyV1    bool   // the issuer is in the extension of old only
	expired   bool   // it was logged after the certificate's end
	noSCT     bool
	noTime    bool   // the log promises nothing
	stamped   bool   // by the authority of timestamps
	v2        bool   // the entry is one of Rekor v2
	strange   bool   // the checkpoint is by another key
	entryOf   string // signature or payload: the log's entry is of another one
	authority *authority
}

type verdict struct {
	Cosign string `json:"cosign"`
}

type fixtures struct {
	Tags     map[string]string  `json:"tags"`
	Blobs    map[string]blob    `json:"blobs"`
	Roots    map[string]string  `json:"roots"`
	Other    string             `json:"other"`
	Verdicts map[string]verdict `json:"verdicts"`
}

type blob struct {
	Kind string `json:"kind"`
	Data string `json:"data"`
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	registry, cosign, out := os.Args[1], os.Args[2], os.Args[3]
	at := time.Now().UTC().Truncate(time.Second).Add(-24 * time.Hour)
	world := newWorld(at)
	good := world.authority(at.Add(-time.Hour), at.Add(1000*time.Hour))
	// Its issuing certificate had ended before anything was signed.
	ended := world.authority(at.Add(-2*time.Hour), at.Add(-time.Hour))
	all := map[string]how{
		"bundle":              {form: "bundle"},
		"message":             {form: "message"},
		"old":                 {form: "old"},
		"bundle-mail":         {form: "bundle", mail: true},
		"old-mail":            {form: "old", mail: true},
		"bundle-other-name":   {form: "bundle", other: true},
		"bundle-v1-issuer":    {form: "bundle", onlyV1: true},
		"bundle-stamped":      {form: "bundle", noTime: true, stamped: true},
		"bundle-both-times":   {form: "bundle", stamped: true},
		"old-stamped":         {form: "old", stamped: true},
		"bundle-rekor2":       {form: "bundle", v2: true, stamped: true},
		"message-rekor2":      {form: "message", v2: true, stamped: true},
		"bundle-no-time":      {form: "bundle", noTime: true},
		"bundle-expired":      {form: "bundle", expired: true},
		"old-expired":         {form: "old", expired: true},
		"bundle-no-sct":       {form: "bundle", noSCT: true},
		"old-no-sct":          {form: "old", noSCT: true},
		"bundle-strange":      {form: "bundle", strange: true},
		"bundle-of-signature": {form: "bundle", entryOf: "signature"},
		"bundle-of-payload":   {form: "bundle", entryOf: "payload"},
		"old-of-signature":    {form: "old", entryOf: "signature"},
		"old-of-payload":      {form: "old", entryOf: "payload"},
		"bundle-ended":        {form: "bundle", authority: ended},
		"old-ended":           {form: "old", authority: ended},
		chart:                 {form: "bundle"},
		"unsigned":            {},
	}
	made := fixtures{Tags: map[string]string{}, Blobs: map[string]blob{}, Roots: map[string]string{}, Verdicts: map[string]verdict{}}
	made.Roots["good"] = world.root(good)
	made.Roots["ended"] = world.root(ended)
	made.Other = base64.StdEncoding.EncodeToString(spki(world.otherKey))
	work := must(os.MkdirTemp("", "keyless"))
	defer os.RemoveAll(work)
	for name, root := range made.Roots {
		check(os.WriteFile(filepath.Join(work, name), []byte(root), 0o600))
	}
	store := &store{made: &made, registry: registry}
	for name, how := range all {
		if how.authority == nil {
			how.authority = good
		}
		image, manifest := store.image(name)
		if how.form != "" {
			world.sign(store, name, image, manifest, how)
		}
		root := "good"
		if how.authority == ended {
			root = "ended"
		}
		args := []string{"verify", "--trusted-root", filepath.Join(work, root), "--offline", "--certificate-identity-regexp", ".",
			"--certificate-oidc-issuer-regexp", "^https://token\\.example$", fmt.Sprintf("--new-bundle-format=%v", how.form != "old"),
			fmt.Sprintf("%s/app@%s", registry, image)}
		if how.v2 || how.noTime || how.form == "old" && how.stamped {
			args = append(args, "--use-signed-timestamps")
		}
		said, err := exec.Command(cosign, args...).CombinedOutput()
		told := "verified"
		if err != nil {
			lines := strings.Split(strings.TrimSpace(string(said)), "\n")
			told = strings.ReplaceAll(lines[len(lines)-1], registry, "REGISTRY")
		}
		fmt.Println(name, told)
		made.Verdicts[name] = verdict{told}
	}
	text := must(json.MarshalIndent(made, "", " "))
	check(os.WriteFile(out, append(text, '\n'), 0o644))
}
