package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

type generator struct{ *rand.Rand }

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func (g *generator) one(of ...string) string { return of[g.Intn(len(of))] }
func (g *generator) in(n int) bool           { return g.Intn(n) == 0 }

// step makes up the next write.
func (g *generator) step(live object) step {
	s := step{Version: "v1"}
	if g.in(4) {
		s.Version = "v2"
	}
	if live != nil && g.in(6) {
		s.Subresource = "status"
	}
	switch {
	case g.in(8) && s.Subresource == "":
		s.Operation, s.Manager = "Update", "kubectl-client-side-apply"
		s.Input = g.clientSideApply(live, s.Version)
	case g.in(2):
		s.Operation = "Update"
		s.Manager = g.one("u1", "u2", "u3", "", "kubectl", "odd<&>\"name", "u4", "u5", "u6", "u7", "u8", "u9", "ua", "ub")
		s.Input = g.update(live, s.Version, s.Manager)
	default:
		s.Operation = "Apply"
		s.Manager = g.one("kubectl", "kubectl", "alice", "bob", "carol<&>")
		s.Force = g.in(3)
		s.Input = g.config(s.Version)
	}
	return s
}

// config is something to apply; now and then it is not in order.
func (g *generator) config(version string) object {
	out := g.thing(version, 3)
	if g.in(40) {
		out["spec"].(object)["unknown"] = "field"
	}
	if g.in(60) {
		out["metadata"].(object)["managedFields"] = []interface{}{}
	}
	if g.in(60) {
		out["spec"].(object)["set"] = []interface{}{"a", "a"}
	}
	return out
}

// update is the live object with some of its fields set to others, taken away, or added.
func (g *generator) update(live object, version, manager string) object {
	if live == nil {
		return g.thing(version, 3)
	}
	out := runtime.DeepCopyJSON(live)
	convert(out, version)
	other := g.thing(version, 3)
	for _, part := range []string{"spec", "status", "metadata"} {
		mine, ok := out[part].(object)
		if !ok {
			mine = object{}
			out[part] = mine
		}
		theirs := other[part].(object)
		for _, key := range slices.Sorted(maps.Keys(theirs)) {
			value := theirs[key]
			switch {
			case key == "name":
			case g.in(5):
				delete(mine, key)
			default:
				mine[key] = value
			}
		}
		for _, key := range slices.Sorted(maps.Keys(mine)) {
			if part != "metadata" && g.in(12) {
				delete(mine, key)
			}
		}
	}
	if g.in(2) {
		// Something that stays this manager's, so that there come to be many.
		metadata := out["metadata"].(object)
		labels, ok := metadata["labels"].(object)
		if !ok {
			labels = object{}
			metadata["labels"] = labels
		}
		labels["of-"+manager] = g.text()
	}
	if g.in(20) {
		out["spec"].(object)["set"] = []interface{}{"a", "b", "a"}
	}
	if g.in(20) {
		out["spec"].(object)["items"] = []interface{}{
			object{"name": "a", "value": "1"}, object{"name": "a", "value": g.one("1", "2")}}
	}
	metadata := out["metadata"].(object)
	switch g.Intn(60) {
	case 0:
		metadata["managedFields"] = []interface{}{}
	case 1:
		metadata["managedFields"] = []interface{}{object{}}
	case 2:
		delete(metadata, "managedFields")
	case 3:
		if list, ok := metadata["managedFields"].([]interface{}); ok && len(list) > 1 {
			metadata["managedFields"] = list[1:]
		}
	}
	return out
}

// clientSideApply sets fields and notes them in the annotation.
func (g *generator) clientSideApply(live object, version string) object {
	config := g.thing(version, 3)
	delete(config, "status")
	text, _ := json.Marshal(config)
	out := object{"apiVersion": group + "/" + version, "kind": kind}
	if live != nil {
		out = runtime.DeepCopyJSON(live)
		convert(out, version)
	}
	lay(out, config)
	metadata := out["metadata"].(object)
	annotations, ok := metadata["annotations"].(object)
	if !ok {
		annotations = object{}
		metadata["annotations"] = annotations
	}
	annotations[lastApplied] = string(text) + "\n"
	return out
}

func lay(out, config object) {
	for key, value := range config {
		inner, isMap := value.(object)
		mine, mineIsMap := out[key].(object)
		if isMap && mineIsMap {
			lay(mine, inner)
		} else {
			out[key] = runtime.DeepCopyJSONValue(value)
		}
	}
}

// thing is an object with some fields.
func (g *generator) thing(version string, most int) object {
	spec, status, metadata := object{}, object{}, object{"name": "one"}
	for range 1 + g.Intn(most) {
		g.field(spec, version)
	}
	if g.in(3) {
		g.metadata(metadata)
	}
	if g.in(3) {
		g.status(status)
	}
	return object{"apiVersion": group + "/" + version, "kind": kind, "metadata": metadata, "spec": spec, "status": status}
}

func (g *generator) metadata(out object) {
	switch g.Intn(4) {
	case 0:
		out["labels"] = g.texts()
	case 1:
		out["annotations"] = g.texts()
	case 2:
		out["finalizers"] = g.set()
	default:
		list := []interface{}{}
		for _, uid := range g.set() {
			list = append(list, object{"uid": uid, "name": g.one("x", "y"), "controller": g.in(2)})
		}
		out["ownerReferences"] = list
	}
}

func (g *generator) status(out object) {
	if g.in(2) {
		out["phase"] = g.text()
	}
	if g.in(2) {
		out["observedGeneration"] = int64(g.Intn(3))
	}
	list := []interface{}{}
	for _, name := range g.set() {
		list = append(list, object{"type": name, "status": g.one("True", "False"), "message": g.text()})
	}
	out["conditions"] = list
}

func (g *generator) text() string { return g.one("1", "2", "3", "<&>", "") }

func (g *generator) texts() object {
	out := object{}
	for range g.Intn(3) {
		out[g.one("a", "b", "c", "d/e<>")] = g.text()
	}
	return out
}

// set is some different texts in any order.
func (g *generator) set() []interface{} {
	out := []interface{}{}
	all := []string{"a", "b", "c", "d<e>&\"f", "é"}
	g.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, text := range all[:g.Intn(4)] {
		out = append(out, text)
	}
	return out
}

// field sets one field of a spec.
func (g *generator) field(spec object, version string) {
	if g.in(25) {
		name := g.one("text", "number", "texts", "nested", "list", "set", "items", "free", "anything", "atomicTexts")
		spec[name] = nil
		return
	}
	switch g.Intn(20) {
	case 0:
		spec["text"] = g.text()
	case 1:
		spec["number"] = int64(g.Intn(3))
	case 2:
		spec["ratio"] = []interface{}{0.5, int64(1), 1.5, 1e30}[g.Intn(4)]
	case 3:
		spec["flag"] = g.in(2)
	case 4, 5:
		spec[map[string]string{"v1": "oldName", "v2": "newName"}[version]] = g.text()
	case 6:
		spec["intOrString"] = []interface{}{int64(1), "1", "50%"}[g.Intn(3)]
	case 7:
		spec["anything"] = g.anything(2)
	case 8:
		spec["free"] = object{g.one("a", "b"): g.anything(2), g.one("a", "c"): g.anything(2)}
	case 9:
		spec["partlyFree"] = object{"known": g.text(), g.one("a", "b"): g.anything(1), "inner": object{g.one("a", "z"): "1"}}
	case 10:
		spec["texts"] = g.texts()
	case 11:
		spec["atomicTexts"] = g.texts()
	case 12:
		spec["atomicObject"] = object{"a": g.text(), "b": object{"c": int64(g.Intn(2))}}
	case 13:
		spec["nested"] = g.nested()
	case 14:
		objects := object{}
		for range g.Intn(3) {
			objects[g.one("a", "b", "c")] = object{g.one("p", "q"): g.text()}
		}
		spec["objects"] = objects
	case 15:
		spec[g.one("list", "set")] = g.set()
	case 16:
		spec["listOfObjects"] = []interface{}{object{"a": g.text()}, object{}}
	case 17:
		numbers := []interface{}{int64(1), 1.5, int64(-3), 0.25}
		g.Shuffle(len(numbers), func(i, j int) { numbers[i], numbers[j] = numbers[j], numbers[i] })
		spec["numbers"] = numbers[:g.Intn(4)]
	case 18:
		spec["items"] = g.items()
	default:
		spec["ports"] = g.ports()
	}
}

func (g *generator) nested() object {
	out := object{}
	if g.in(2) {
		out["a"] = g.text()
	}
	if g.in(2) {
		out["b"] = int64(g.Intn(2))
	}
	if g.in(2) {
		deep := object{}
		if g.in(2) {
			deep["x"] = g.text()
		}
		if g.in(2) {
			deep["y"] = g.set()
		}
		out["deep"] = deep
	}
	return out
}

func (g *generator) items() []interface{} {
	out := []interface{}{}
	for _, name := range g.set() {
		item := object{"name": name}
		if g.in(2) {
			item["value"] = g.text()
		}
		if g.in(3) {
			item["tags"] = g.set()
		}
		if g.in(3) {
			item["sub"] = object{g.one("a", "b"): g.text()}
		}
		if g.in(4) {
			inner := []interface{}{}
			for id := range g.Intn(3) {
				inner = append(inner, object{"id": int64(id), "v": g.text()})
			}
			item["inner"] = inner
		}
		out = append(out, item)
	}
	return out
}

func (g *generator) ports() []interface{} {
	out := []interface{}{}
	seen := map[string]bool{}
	for range g.Intn(4) {
		port, protocol := int64(80+g.Intn(2)), g.one("TCP", "UDP", "")
		item := object{"port": port}
		if protocol != "" {
			item["protocol"] = protocol
		} else {
			protocol = "TCP"
		}
		if g.in(2) {
			item["name"] = g.text()
		}
		if key := fmt.Sprint(port, protocol); !seen[key] {
			seen[key] = true
			out = append(out, item)
		}
	}
	return out
}

// anything is a value of any form.
func (g *generator) anything(depth int) interface{} {
	n := 6
	if depth == 0 {
		n = 4
	}
	switch g.Intn(n) {
	case 0:
		return g.text()
	case 1:
		return int64(g.Intn(2))
	case 2:
		return g.in(2)
	case 3:
		return nil
	case 4:
		return []interface{}{g.anything(depth - 1), g.anything(depth - 1)}
	default:
		return object{g.one("a", "b"): g.anything(depth - 1), g.one("a", "c"): g.anything(depth - 1)}
	}
}
