// Makes cases for the tests of roadstead-finish: random objects and variables, and what Flux's substitution makes of them.
//
// Usage: go run . SEED COUNT > cases.json
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/fluxcd/pkg/envsubst"
	"sigs.k8s.io/yaml"
)

type testCase struct {
	Object    map[string]any    `json:"object"`
	Variables map[string]string `json:"variables"`
	Strict    bool              `json:"strict"`
	Result    any               `json:"result,omitempty"`
	Error     string            `json:"error,omitempty"`
}

var names = []string{"a", "b", "c_1", "_d", "none", "other"}

var values = []string{
	"", "x", "abcABC123ABCabc", "3", "true", "yes", "1.50", "0777", "a.b.c/d.e", "héllo", "{k: v}", "[1, two]", "a: b",
	"# no", "it's", `say "hi"`, "null", "~", "path/to/file.tar.gz", "- item", " lead", "tail ", "1e3", "2020-01-02", "*x", "&y", "100m",
	"http://host:80/p?q=1", "a\nb", "%d", "!tag", "0x1F", "1_000", "on", "<<", "=", "`", "@", ":", "?", "|", ">",
}

var pieces = []string{"x", "-", " ", "$", "$$", "/", "\\", ":", "é", "}", "{", "{}", "#", "a.b", "'", "\"", ".", "\n", "0", "2020", "key: value"}

var patterns = []string{"*", "*.", ".*", "a*", "*/", "/*", "?", "[a-c]", "[^a]*", "[", "\\*", "abc", "ABC", "*C", "[]", "[a", "", "/", "b?", "é"}

func pick(r *rand.Rand, from []string) string { return from[r.Intn(len(from))] }

func expression(r *rand.Rand, depth int) string {
	name := pick(r, names)
	argument := func(texts []string) string {
		if depth < 2 && r.Intn(6) == 0 {
			return expression(r, depth+1)
		}
		return pick(r, texts)
	}
	switch r.Intn(16) {
	case 0, 1, 2, 3:
		return "${" + name + "}"
	case 4, 5:
		word := pick(r, []string{"=", ":=", ":-", ":?", ":+", "-", ":"})
		text := ""
		for range r.Intn(3) {
			text += argument(append(append([]string{}, pieces...), values...))
		}
		return "${" + name + word + text + "}"
	case 6:
		return "${#" + name + "}"
	case 7, 8:
		return "${" + name + pick(r, []string{"^", "^^", ",", ",,", "^,", ",^^"}) + "}"
	case 9, 10:
		position := strconv.Itoa(r.Intn(12) - 4)
		if r.Intn(2) == 0 {
			return "${" + name + ":" + position + "}"
		}
		return "${" + name + ":" + position + ":" + strconv.Itoa(r.Intn(12)-4) + "}"
	case 11, 12:
		return "${" + name + pick(r, []string{"#", "##", "%", "%%"}) + argument(patterns) + "}"
	case 13, 14:
		return "${" + name + pick(r, []string{"/", "//", "/#", "/%"}) + argument(append([]string{"\\/", "$$"}, patterns...)) + "/" + argument(append([]string{""}, pieces...)) + "}"
	default:
		return pick(r, []string{"${", "${}", "${a", "$${a}", "${a b}", "${a:}", "${a/b}", "$$", "$${", "${a}}", "${${a}}", "${a:=${b}${c_1}}"})
	}
}

func text(r *rand.Rand) string {
	var out strings.Builder
	for range 1 + r.Intn(3) {
		if r.Intn(3) > 0 {
			out.WriteString(expression(r, 0))
		} else {
			out.WriteString(pick(r, pieces))
		}
	}
	return out.String()
}

func main() {
	seed, _ := strconv.ParseInt(os.Args[1], 10, 64)
	count, _ := strconv.Atoi(os.Args[2])
	r := rand.New(rand.NewSource(seed))
	cases := make([]testCase, 0, count)
	for len(cases) < count {
		one := testCase{Variables: map[string]string{}, Strict: r.Intn(3) > 0}
		data := map[string]any{"first": text(r)}
		switch r.Intn(6) {
		case 0:
			data["list"] = []any{text(r), 1, "plain"}
		case 1:
			data[text(r)] = "x"
		case 2:
			data["block"] = "one\n" + text(r) + "\nthree\n"
		}
		one.Object = map[string]any{"kind": "Example", "data": data}
		for _, name := range names[:4] {
			if r.Intn(4) > 0 {
				one.Variables[name] = pick(r, values)
			}
		}
		// As they are in the file.
		encoded, _ := json.Marshal(one.Object)
		var object map[string]any
		_ = json.Unmarshal(encoded, &object)
		result, err := substitute(object, one.Variables, one.Strict)
		if err != nil {
			one.Error = err.Error()
		} else {
			one.Result = result
		}
		cases = append(cases, one)
	}
	out := json.NewEncoder(os.Stdout)
	fmt.Println("[")
	for i, one := range cases {
		if i > 0 {
			fmt.Print(",")
		}
		_ = out.Encode(one)
	}
	fmt.Println("]")
}

// What Flux does with an object, its text and its variables.
func substitute(object map[string]any, variables map[string]string, strict bool) (result any, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v", panicked)
		}
	}()
	if len(variables) == 0 {
		return object, nil
	}
	valid := regexp.MustCompile("^[_[:alpha:]][_[:alpha:][:digit:]]*$")
	for name := range variables {
		if !valid.MatchString(name) {
			return nil, fmt.Errorf("name")
		}
	}
	text, err := yaml.Marshal(object)
	if err != nil {
		return nil, err
	}
	output, err := envsubst.Eval(string(text), func(name string) (string, bool) {
		value, exists := variables[name]
		return strings.ReplaceAll(value, "\n", ""), exists || !strict
	})
	if err != nil {
		return nil, err
	}
	encoded, err := yaml.YAMLToJSON([]byte(output))
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(encoded, &result)
	return result, err
}
