// Command oracle builds kustomizations with the real kustomize, many in one process.
//
// It reads one tree per line from standard input, {"files": {"path": "text"}}, builds its root, and answers each with one
// line: {"yaml": "..."} or {"error": "..."}.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"path"
	"time"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

type tree struct {
	Files map[string]string `json:"files"`
}

type answer struct {
	YAML  *string `json:"yaml,omitempty"`
	Error *string `json:"error,omitempty"`
}

func build(in tree) (out answer) {
	fail := func(why string) answer { return answer{Error: &why} }
	defer func() {
		if panicked := recover(); panicked != nil {
			out = fail(fmt.Sprint("panic: ", panicked))
		}
	}()
	files := filesys.MakeFsInMemory()
	for name, text := range in.Files {
		if err := files.MkdirAll(path.Dir("/" + name)); err != nil {
			return fail(err.Error())
		}
		if err := files.WriteFile("/"+name, []byte(text)); err != nil {
			return fail(err.Error())
		}
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionUnspecified
	objects, err := krusty.MakeKustomizer(options).Run(files, "/")
	if err != nil {
		return fail(err.Error())
	}
	yaml, err := objects.AsYaml()
	if err != nil {
		return fail(err.Error())
	}
	text := string(yaml)
	return answer{YAML: &text}
}

// An input that takes longer makes kustomize go round in circles: an anchor that contains itself, for one.
const patience = 5 * time.Second

func main() {
	log.SetOutput(io.Discard)
	// Warnings are no part of an answer.
	os.Stderr, _ = os.Open(os.DevNull)
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			var one tree
			var result answer
			if wrong := json.Unmarshal(line, &one); wrong != nil {
				why := wrong.Error()
				result = answer{Error: &why}
			} else {
				done := make(chan answer, 1)
				go func() { done <- build(one) }()
				select {
				case result = <-done:
				case <-time.After(patience):
					// It cannot be stopped: whoever asked starts another process.
					os.Exit(1)
				}
			}
			text, _ := json.Marshal(result)
			_, _ = out.Write(append(text, '\n'))
			_ = out.Flush()
		}
		if err != nil {
			return
		}
	}
}
