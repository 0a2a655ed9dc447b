// Command oracle writes sequences of writes to an object, and what k8s.io/apimachinery's managedfields makes of them: one
// case on each line of its output, as JSON. A test of the crate replays them.
//
//	go run . -cases 200 -seed 1 > ../tests/cases.jsonl
package main

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand"
	"os"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

//go:embed schemas.json
var schemasJSON []byte

const group, kind = "oracle.roadstead.dev", "Thing"

type object = map[string]interface{}

// A step is a write and what came of it.
type step struct {
	// Apply or Update.
	Operation   string `json:"operation"`
	Manager     string `json:"manager"`
	Version     string `json:"version"`
	Subresource string `json:"subresource,omitempty"`
	Force       bool   `json:"force,omitempty"`
	Time        string `json:"time"`
	// The configuration, or the whole new object.
	Input object `json:"input"`
	// The object afterwards in v1, if the write happened.
	Object object `json:"object,omitempty"`
	// The conflict's message, and its causes.
	Conflict string      `json:"conflict,omitempty"`
	Causes   [][2]string `json:"causes,omitempty"`
	// Another error.
	Error string `json:"error,omitempty"`
}

func main() {
	cases := flag.Int("cases", 200, "how many cases")
	seed := flag.Int64("seed", 1, "the first seed")
	steps := flag.Int("steps", 9, "at most how many writes in a case")
	flag.Parse()
	world, err := newWorld()
	if err != nil {
		log.Fatal(err)
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for i := range *cases {
		if err := encoder.Encode(world.run(*seed+int64(i), *steps)); err != nil {
			log.Fatal(err)
		}
	}
}

// managerKey says which of the field managers of an apiserver takes a write.
type managerKey struct{ version, subresource string }

type world struct {
	managers map[managerKey]*managedfields.FieldManager
}

func newWorld() (*world, error) {
	specs := map[string]*spec.Schema{}
	for _, version := range []string{"v1", "v2"} {
		var all map[string]*spec.Schema
		if err := json.Unmarshal(schemasJSON, &all); err != nil {
			return nil, err
		}
		one := all["v1"]
		if version == "v2" {
			properties := one.Properties["spec"].Properties
			properties["newName"] = properties["oldName"]
			delete(properties, "oldName")
		}
		one.Extensions = spec.Extensions{"x-kubernetes-group-version-kind": []interface{}{
			object{"group": group, "version": version, "kind": kind}}}
		specs["Thing."+version] = one
	}
	types, err := managedfields.NewTypeConverter(specs, false)
	if err != nil {
		return nil, err
	}
	w := &world{managers: map[managerKey]*managedfields.FieldManager{}}
	excluded := map[string][]string{"": {"status"}, "status": {"metadata", "spec"}}
	for _, version := range []string{"v1", "v2"} {
		for subresource, fields := range excluded {
			set := fieldpath.NewSet()
			for _, field := range fields {
				set.Insert(fieldpath.MakePathOrDie(field))
			}
			reset := map[fieldpath.APIVersion]*fieldpath.Set{
				fieldpath.APIVersion(group + "/v1"): set, fieldpath.APIVersion(group + "/v2"): set,
			}
			manager, err := managedfields.NewDefaultCRDFieldManager(types, converter{}, defaulter{}, creater{},
				schema.GroupVersionKind{Group: group, Version: version, Kind: kind},
				schema.GroupVersion{Group: group, Version: "v1"}, subresource,
				fieldpath.NewExcludeFilterSetMap(reset))
			if err != nil {
				return nil, err
			}
			w.managers[managerKey{version, subresource}] = manager
		}
	}
	return w, nil
}

// run makes one case.
func (w *world) run(seed int64, most int) []step {
	g := &generator{Rand: rand.New(rand.NewSource(seed))}
	var live object
	var done []step
	for n := range 3 + g.Intn(most-2) {
		s := g.step(live)
		s.Time = time.Date(2020, 1, 1, 0, n, 0, 0, time.UTC).Format(time.RFC3339)
		w.take(&s, live)
		if s.Object != nil {
			live = s.Object
		}
		done = append(done, s)
	}
	return done
}

// take does a write to the live object.
func (w *world) take(s *step, live object) {
	manager := w.managers[managerKey{s.Version, s.Subresource}]
	before := &unstructured.Unstructured{Object: object{"apiVersion": group + "/v1", "kind": kind}}
	if live != nil {
		before.Object = runtime.DeepCopyJSON(live)
	}
	convert(before.Object, s.Version)
	input := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(s.Input)}
	var after runtime.Object
	var err error
	if s.Operation == "Apply" {
		after, err = manager.Apply(before, input, s.Manager, s.Force)
	} else {
		after, err = manager.Update(before, input, s.Manager)
	}
	var status *apierrors.StatusError
	switch {
	case errors.As(err, &status) && status.ErrStatus.Reason == metav1.StatusReasonConflict:
		s.Conflict = status.ErrStatus.Message
		for _, cause := range status.ErrStatus.Details.Causes {
			s.Causes = append(s.Causes, [2]string{cause.Message, cause.Field})
		}
		// Managers come in any order.
		slices.SortFunc(s.Causes, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
		return
	case err != nil:
		s.Error = err.Error()
		return
	}
	result := normal(after.(*unstructured.Unstructured).Object)
	convert(result, "v1")
	finish(result, live, s)
	s.Object = result
}

// finish does what a registry does after: the other part stays as it was, the new object has a uid, and times are those
// of the test.
func finish(result, live object, s *step) {
	metadata, _ := result["metadata"].(object)
	if metadata == nil {
		metadata = object{}
		result["metadata"] = metadata
	}
	entries := metadata["managedFields"]
	if s.Subresource == "status" {
		status, had := result["status"]
		for key := range result {
			delete(result, key)
		}
		for key, value := range runtime.DeepCopyJSON(live) {
			result[key] = value
		}
		delete(result, "status")
		if had {
			result["status"] = status
		}
		metadata = result["metadata"].(object)
		delete(metadata, "managedFields")
		if entries != nil {
			metadata["managedFields"] = entries
		}
	} else {
		delete(result, "status")
		if live != nil && live["status"] != nil {
			result["status"] = runtime.DeepCopyJSONValue(live["status"])
		}
	}
	metadata["uid"] = "0000"
	list, _ := entries.([]interface{})
	for _, entry := range list {
		entry := entry.(object)
		if at, ok := entry["time"].(string); ok && at > "2025" {
			entry["time"] = s.Time
		}
	}
}

// normal is the object as it is after a trip over the wire.
func normal(in object) object {
	text, err := json.Marshal(in)
	if err != nil {
		log.Fatal(err)
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(text); err != nil {
		log.Fatal(err)
	}
	return out.Object
}

// convert renames the one field that the versions name differently.
func convert(o object, version string) {
	o["apiVersion"] = group + "/" + version
	from, to := "oldName", "newName"
	if version == "v1" {
		from, to = to, from
	}
	if spec, ok := o["spec"].(object); ok {
		if value, ok := spec[from]; ok {
			delete(spec, from)
			spec[to] = value
		}
	}
}

type converter struct{}

func (converter) Convert(in, out, context interface{}) error { return errors.New("not wanted") }

func (converter) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	gv, ok := target.(schema.GroupVersion)
	if !ok || gv.Group != group || (gv.Version != "v1" && gv.Version != "v2") {
		return nil, runtime.NewNotRegisteredGVKErrForTarget("oracle", in.GetObjectKind().GroupVersionKind(), target)
	}
	out := in.DeepCopyObject().(*unstructured.Unstructured)
	if out.GroupVersionKind().Version != gv.Version {
		convert(out.Object, gv.Version)
	}
	return out, nil
}

func (converter) ConvertFieldLabel(gvk schema.GroupVersionKind, label, value string) (string, string, error) {
	return "", "", fmt.Errorf("not wanted")
}

type defaulter struct{}

func (defaulter) Default(in runtime.Object) {}

type creater struct{}

func (creater) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	out := &unstructured.Unstructured{Object: object{}}
	out.SetGroupVersionKind(gvk)
	return out, nil
}
