// Prints, as JSON, how the Go types of the built-in kinds decode and encode:
// struct -> field -> "Go type;flags;inlined"; with the argument "protobuf", the numbers of the fields:
// struct -> number -> field.
// Flags: o = omitempty, z = omitzero. Fields of inlined structs stand in the outer struct, with the
// names of the inlined ones, since Go's errors print them. A named type is "name=underlying".
//
// The embedded API server keeps both outputs in its data folder. To make them anew, in
// tests/controlplane, whose go.mod pins the release:
//
//	go run ../apiserver/gotypes/main.go > ../../src/kthena/local/apiserver/data/gotypes.json
//	go run ../apiserver/gotypes/main.go protobuf > ../../src/kthena/local/apiserver/data/protobuf.json
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type field string

var structs = map[string]map[string]field{}

var messages = map[string]map[string]any{}

var opaque = map[string]bool{
	"v1.Time": true, "v1.MicroTime": true, "resource.Quantity": true, "intstr.IntOrString": true,
	"v1.FieldsV1": true, "runtime.RawExtension": true, "v1.JSON": true,
	"v1.JSONSchemaPropsOrBool": true, "v1.JSONSchemaPropsOrArray": true,
	"v1.JSONSchemaPropsOrStringArray": true, "v1.Duration": true,
}

// name is the type as Go's JSON errors print it, made unique where two packages share a name.
func name(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + name(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 && t.Name() == "" {
			return "[]uint8"
		}
		if t.Name() != "" {
			return t.String() + "=[]" + name(t.Elem())
		}
		return "[]" + name(t.Elem())
	case reflect.Map:
		if t.Name() != "" {
			return t.String() + "=map[" + t.Key().String() + "]" + name(t.Elem())
		}
		return "map[" + t.Key().String() + "]" + name(t.Elem())
	case reflect.Struct:
		visit(t)
		if opaque[t.String()] {
			return t.String()
		}
		return id(t)
	default:
		if t.Name() != t.Kind().String() {
			return t.String() + "=" + t.Kind().String()
		}
		return t.String()
	}
}

func id(t reflect.Type) string {
	group := t.PkgPath()
	for _, prefix := range []string{"k8s.io/api/", "k8s.io/apimachinery/pkg/apis/", "k8s.io/apiextensions-apiserver/pkg/apis/"} {
		group = strings.TrimPrefix(group, prefix)
	}
	return strings.ReplaceAll(group, "/", ".") + "." + t.Name()
}

func visit(t reflect.Type) {
	if opaque[t.String()] {
		if t.String() == "v1.JSONSchemaPropsOrBool" {
			visit(reflect.TypeOf(apiextensionsv1.JSONSchemaProps{}))
		}
		return
	}
	key := id(t)
	if _, seen := structs[key]; seen {
		return
	}
	structs[key] = map[string]field{}
	expand(t, structs[key], "")
	messages[key] = numbers(t)
}

func expand(t reflect.Type, out map[string]field, inlined string) {
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		parts := strings.Split(f.Tag.Get("json"), ",")
		inline := f.Anonymous && parts[0] == ""
		flags := ""
		for _, p := range parts[1:] {
			switch p {
			case "inline":
				inline = true
			case "omitempty":
				flags += "o"
			case "omitzero":
				flags += "z"
			}
		}
		if inline {
			expand(f.Type, out, inlined+f.Type.Name()+".")
			continue
		}
		if parts[0] == "-" || !f.IsExported() {
			continue
		}
		entry := name(f.Type)
		if flags != "" || inlined != "" {
			entry += ";" + flags
		}
		if inlined != "" {
			entry += ";" + inlined
		}
		out[parts[0]] = field(entry)
	}
}

// numbers maps the field numbers of a struct in protobuf to the names of its fields in JSON. An inlined
// struct is a message of its own there: its number leads to its numbers.
func numbers(t reflect.Type) map[string]any {
	out := map[string]any{}
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("protobuf"), ",")
		if len(tag) < 2 {
			continue
		}
		names := strings.Split(f.Tag.Get("json"), ",")
		if names[0] == "" && f.Type.Kind() == reflect.Struct {
			out[tag[1]] = numbers(f.Type)
		} else {
			out[tag[1]] = names[0]
		}
	}
	return out
}

func main() {
	for _, v := range []any{
		corev1.Pod{}, corev1.Namespace{}, corev1.Node{}, corev1.Service{}, corev1.ConfigMap{}, corev1.Secret{},
		corev1.Event{}, corev1.ServiceAccount{}, corev1.Binding{}, corev1.PersistentVolumeClaim{},
		corev1.Endpoints{},
		eventsv1.Event{}, appsv1.Deployment{}, appsv1.ReplicaSet{}, appsv1.ControllerRevision{},
		coordinationv1.Lease{}, autoscalingv1.Scale{}, apiextensionsv1.CustomResourceDefinition{},
		authorizationv1.SelfSubjectAccessReview{}, authorizationv1.SubjectAccessReview{},
		authorizationv1.LocalSubjectAccessReview{}, authorizationv1.SelfSubjectRulesReview{},
		authenticationv1.SelfSubjectReview{}, authenticationv1.TokenReview{}, authenticationv1.TokenRequest{},
		metav1.DeleteOptions{},
		policyv1.PodDisruptionBudget{}, networkingv1.NetworkPolicy{}, autoscalingv2.HorizontalPodAutoscaler{},
		rbacv1.Role{}, rbacv1.ClusterRole{}, rbacv1.RoleBinding{}, rbacv1.ClusterRoleBinding{},
		admissionv1.ValidatingAdmissionPolicy{}, admissionv1.ValidatingAdmissionPolicyBinding{},
	} {
		visit(reflect.TypeOf(v))
	}
	e := json.NewEncoder(os.Stdout)
	e.SetEscapeHTML(false)
	if len(os.Args) > 1 && os.Args[1] == "protobuf" {
		e.Encode(messages)
	} else {
		e.Encode(structs)
	}
}
