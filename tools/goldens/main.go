// Fills in the answers of the golden tables under tests/unit/machinery/golden.
//
// Every table is a JSON list of rows, one row a line. A row holds the inputs, written by hand, and the
// answers of the Go libraries that Kubernetes is built on, written by this program:
//
//	go run . ../../tests/unit/machinery/golden
//
// Rows without answers get them; rows with answers get them anew.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	pathvalidation "k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

type row map[string]any

var tables = map[string]func(row){
	"quantities.json":             quantityRow,
	"quantity_arithmetic.json":    quantityArithmeticRow,
	"durations.json":              durationRow,
	"int_or_percent.json":         intOrPercentRow,
	"label_selectors.json":        labelSelectorRow,
	"label_selector_objects.json": labelSelectorObjectRow,
	"field_selectors.json":        fieldSelectorRow,
	"regexps.json":                regexpRow,
	"names.json":                  nameRow,
	"metadata_create.json":        metadataCreateRow,
	"metadata_update.json":        metadataUpdateRow,
	"yaml_scalars.json":           yamlRow,
	"yaml_documents.json":         yamlRow,
	"yaml_written.json":           yamlWrittenRow,
	"json_patches.json":           jsonPatchRow,
	"merge_patches.json":          mergePatchRow,
	"strategic_patches.json":      strategicPatchRow,
	"jsonpaths.json":              jsonpathRow,
}

func main() {
	for name, fill := range tables {
		path := filepath.Join(os.Args[1], name)
		if err := fillTable(path, fill); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

func fillTable(path string, fill func(row)) error {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		fmt.Fprintln(os.Stderr, "absent:", path)
		return nil
	}
	if err != nil {
		return err
	}
	var rows []row
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&rows); err != nil {
		return err
	}
	var out bytes.Buffer
	out.WriteString("[\n")
	for i, r := range rows {
		delete(r, "error")
		fillRow(r, fill)
		line := encode(r)
		out.WriteString(line)
		if i < len(rows)-1 {
			out.WriteString(",")
		}
		out.WriteString("\n")
	}
	out.WriteString("]\n")
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// fillRow records a panic of a library as its answer.
func fillRow(r row, fill func(row)) {
	defer func() {
		if cause := recover(); cause != nil {
			r["error"] = "panic"
		}
	}()
	fill(r)
}

func encode(v any) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimRight(out.String(), "\n")
}

// fail writes the error of a row, and takes the answers of an earlier run away.
func fail(r row, err error, answers ...string) bool {
	if err == nil {
		return false
	}
	for _, answer := range answers {
		delete(r, answer)
	}
	r["error"] = err.Error()
	return true
}

func quantityRow(r row) {
	q, err := resource.ParseQuantity(r["in"].(string))
	if fail(r, err, "out", "value", "int", "int64", "float") {
		return
	}
	same := q.DeepCopy()
	if i, ok := same.AsInt64(); ok {
		r["int64"] = i
	}
	r["float"] = fmt.Sprintf("%g", same.AsApproximateFloat64())
	r["int"] = same.Value()
	r["out"] = q.String()
	r["value"] = same.AsDec().String()
}

func quantityArithmeticRow(r row) {
	a, b := resource.MustParse(r["a"].(string)), resource.MustParse(r["b"].(string))
	r["cmp"] = a.Cmp(b)
	sum, difference := a.DeepCopy(), a.DeepCopy()
	sum.Add(b)
	difference.Sub(b)
	r["sum"], r["difference"] = sum.String(), difference.String()
}

func durationRow(r row) {
	d, err := time.ParseDuration(r["in"].(string))
	if fail(r, err, "ns", "out") {
		return
	}
	r["ns"], r["out"] = int64(d), d.String()
}

func intOrPercentRow(r row) {
	var value intstr.IntOrString
	if number, ok := r["value"].(json.Number); ok {
		n, _ := number.Int64()
		value = intstr.FromInt(int(n))
	} else {
		value = intstr.FromString(r["value"].(string))
	}
	total, _ := r["total"].(json.Number).Int64()
	up, err := intstr.GetScaledValueFromIntOrPercent(&value, int(total), true)
	if fail(r, err, "up", "down") {
		return
	}
	down, _ := intstr.GetScaledValueFromIntOrPercent(&value, int(total), false)
	r["up"], r["down"] = up, down
}

func matches(selector labels.Selector, r row) {
	var answers []bool
	for _, set := range r["labels"].([]any) {
		labelSet := labels.Set{}
		for k, v := range set.(map[string]any) {
			labelSet[k] = v.(string)
		}
		answers = append(answers, selector.Matches(labelSet))
	}
	r["matches"] = answers
}

func labelSelectorRow(r row) {
	selector, err := labels.Parse(r["in"].(string))
	if fail(r, err, "out", "matches") {
		return
	}
	r["out"] = selector.String()
	if r["labels"] != nil {
		matches(selector, r)
	}
}

func labelSelectorObjectRow(r row) {
	var selector *metav1.LabelSelector
	convert(r["object"], &selector)
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if fail(r, err, "out", "matches") {
		return
	}
	r["out"] = parsed.String()
	if r["labels"] != nil {
		matches(parsed, r)
	}
}

func convert(from, to any) {
	data, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		panic(err)
	}
}

func fieldSelectorRow(r row) {
	selector, err := fields.ParseSelector(r["in"].(string))
	if fail(r, err, "out", "requirements", "matches") {
		return
	}
	r["out"] = selector.String()
	requirements := [][]string{}
	for _, q := range selector.Requirements() {
		requirements = append(requirements, []string{q.Field, string(q.Operator), q.Value})
	}
	r["requirements"] = requirements
	set := fields.Set{"metadata.name": "a", "metadata.namespace": "b", "status.phase": ""}
	r["matches"] = selector.Matches(set)
}

func regexpRow(r row) {
	compiled, err := regexp.Compile(r["in"].(string))
	if fail(r, err, "all") {
		return
	}
	if text, ok := r["text"].(string); ok {
		all := compiled.FindAllString(text, -1)
		if all == nil {
			all = []string{}
		}
		r["all"] = all
	}
}

func nameRow(r row) {
	name := r["in"].(string)
	for answer, check := range map[string]func(string) []string{
		"dns1123_label": validation.IsDNS1123Label, "dns1123_subdomain": validation.IsDNS1123Subdomain,
		"dns1035_label": validation.IsDNS1035Label, "qualified_name": validation.IsQualifiedName,
		"label_value": validation.IsValidLabelValue, "port_name": validation.IsValidPortName,
		"env_var_name": validation.IsRelaxedEnvVarName, "config_map_key": validation.IsConfigMapKey,
		"path_segment": func(s string) []string { return pathvalidation.ValidatePathSegmentName(s, false) },
	} {
		delete(r, answer)
		if messages := check(name); len(messages) > 0 {
			r[answer] = messages
		}
	}
}

func errorTexts(errors field.ErrorList) []string {
	texts := []string{}
	for _, e := range errors {
		texts = append(texts, e.Error())
	}
	return texts
}

func metadataCreateRow(r row) {
	var object metav1.ObjectMeta
	convert(r["metadata"], &object)
	r["errors"] = errorTexts(apivalidation.ValidateObjectMeta(
		&object, r["namespaced"].(bool), pathvalidation.ValidatePathSegmentName, field.NewPath("metadata")))
}

func metadataUpdateRow(r row) {
	var older, newer metav1.ObjectMeta
	convert(r["old"], &older)
	convert(r["new"], &newer)
	r["errors"] = errorTexts(apivalidation.ValidateObjectMetaUpdate(&newer, &older, field.NewPath("metadata")))
}

func yamlRow(r row) {
	out, err := yaml.YAMLToJSONStrict([]byte(r["in"].(string)))
	if fail(r, err, "out") {
		return
	}
	r["out"] = json.RawMessage(out)
}

func yamlWrittenRow(r row) {
	out, err := yaml.YAMLToJSONStrict([]byte(r["text"].(string)))
	if fail(r, err, "read") {
		return
	}
	r["read"] = json.RawMessage(out)
}

func jsonPatchRow(r row) {
	patch, err := jsonpatch.DecodePatch([]byte(encode(r["patch"])))
	if fail(r, err, "out") {
		return
	}
	out, err := patch.Apply([]byte(encode(r["document"])))
	if fail(r, err, "out") {
		return
	}
	r["out"] = json.RawMessage(out)
}

func mergePatchRow(r row) {
	out, err := jsonpatch.MergePatch([]byte(encode(r["document"])), []byte(encode(r["patch"])))
	if fail(r, err, "out") {
		return
	}
	r["out"] = json.RawMessage(out)
}

func strategicPatchRow(r row) {
	kinds := map[string]any{"Pod": corev1.Pod{}, "Service": corev1.Service{}, "Deployment": appsv1.Deployment{}}
	out, err := strategicpatch.StrategicMergePatch(
		[]byte(encode(r["document"])), []byte(encode(r["patch"])), kinds[r["kind"].(string)])
	if fail(r, err, "out") {
		return
	}
	r["out"] = json.RawMessage(out)
}

// jsonpathRow finds as the API server does for the additional printer columns of a CRD.
func jsonpathRow(r row) {
	parser := jsonpath.New("column").AllowMissingKeys(true)
	if fail(r, parser.Parse("{"+r["path"].(string)+"}"), "out") {
		return
	}
	var object map[string]any
	// With integers as the API server has them.
	if err := kjson.Unmarshal([]byte(encode(r["object"])), &object); err != nil {
		panic(err)
	}
	results, err := parser.FindResults(object)
	if fail(r, err, "out") {
		return
	}
	out := []any{}
	for _, group := range results {
		for _, value := range group {
			if value.Kind() == reflect.Invalid {
				out = append(out, nil)
			} else {
				out = append(out, value.Interface())
			}
		}
	}
	r["out"] = out
}
