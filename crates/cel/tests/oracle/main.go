// Answers the cases of ../cases.json with cel-go, in the environment that Flux evaluates its expressions in.
//
// Add a case with any result, then: cd crates/cel/tests/oracle && go run . < ../cases.json > new && mv new ../cases.json
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
)

type testCases struct {
	Variables map[string]any `json:"variables"`
	Cases     []testCase     `json:"cases"`
}

type testCase struct {
	Expression string `json:"expression"`
	// "true", "false", "parse" (refused before it is evaluated), "error" (no answer) or "other" (not a boolean).
	Result string `json:"result"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	environment, err := cel.NewEnv(
		cel.HomogeneousAggregateLiterals(),
		cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(),
		ext.Strings(), ext.Sets(), ext.Encoders(),
	)
	if err != nil {
		return err
	}
	input := json.NewDecoder(os.Stdin)
	input.UseNumber()
	var all testCases
	if err := input.Decode(&all); err != nil {
		return err
	}
	variables := asKubernetes(all.Variables).(map[string]any)
	for i := range all.Cases {
		all.Cases[i].Result = answer(environment, all.Cases[i].Expression, variables)
	}
	return write(all)
}

// One case a line.
func write(all testCases) error {
	var out bytes.Buffer
	head, err := json.Marshal(all.Variables)
	if err != nil {
		return err
	}
	out.WriteString("{\n\"variables\": " + string(head) + ",\n\"cases\": [\n")
	for i, c := range all.Cases {
		line := new(bytes.Buffer)
		encoder := json.NewEncoder(line)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(c); err != nil {
			return err
		}
		out.WriteString("  " + string(bytes.TrimSpace(line.Bytes())))
		if i+1 < len(all.Cases) {
			out.WriteString(",")
		}
		out.WriteString("\n")
	}
	out.WriteString("]\n}\n")
	_, err = os.Stdout.Write(out.Bytes())
	return err
}

func answer(environment *cel.Env, expression string, variables map[string]any) string {
	tree, issues := environment.Parse(expression)
	if issues != nil {
		return "parse"
	}
	program, err := environment.Program(tree, cel.EvalOptions(cel.OptOptimize), cel.InterruptCheckFrequency(100))
	if err != nil {
		return "parse"
	}
	value, _, err := program.Eval(variables)
	if err != nil {
		return "error"
	}
	if boolean, ok := value.(types.Bool); ok {
		return fmt.Sprint(bool(boolean))
	}
	return "other"
}

// Numbers as Kubernetes reads them: int64 where they fit, else float64.
func asKubernetes(value any) any {
	switch value := value.(type) {
	case json.Number:
		if integer, err := value.Int64(); err == nil {
			return integer
		}
		float, _ := value.Float64()
		return float
	case map[string]any:
		out := make(map[string]any, len(value))
		for key, element := range value {
			out[key] = asKubernetes(element)
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i, element := range value {
			out[i] = asKubernetes(element)
		}
		return out
	default:
		return value
	}
}
