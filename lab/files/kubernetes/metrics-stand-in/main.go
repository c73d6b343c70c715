// Command metrics-stand-in answers, over TLS, the two aggregated APIs that Metrics Server and
// Prometheus Adapter answer on a real cluster, so that their APIServices are Available on the lab.
// It has no figures to tell: the lab's machine has no memory controller to read them from, so
// every list is empty. It is not a fake of the metrics: whoever needs figures builds the real
// Metrics Server (`ensure(extra=["metrics-server"])`).
//
//	metrics-stand-in :10250 metrics.k8s.io/v1beta1 nodes:NodeMetrics:false pods:PodMetrics:true
//
// Arguments: where to listen, the API's group and version, then its resources as
// name:kind:namespaced.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"log"
	"math/big"
	"net/http"
	"os"
	"strings"
	"time"
)

type resource struct {
	Name         string   `json:"name"`
	SingularName string   `json:"singularName"`
	Namespaced   bool     `json:"namespaced"`
	Kind         string   `json:"kind"`
	Verbs        []string `json:"verbs"`
}

// api is one group and version with its resources.
type api struct {
	group, version string
	resources      []resource
}

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: metrics-stand-in LISTEN GROUP/VERSION [NAME:KIND:NAMESPACED ...]")
	}
	served, err := parse(os.Args[2], os.Args[3:])
	if err != nil {
		log.Fatal(err)
	}
	certificate, err := selfSigned()
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{
		Addr:              os.Args[1],
		Handler:           served,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second,
	}
	log.Fatal(server.ListenAndServeTLS("", ""))
}

func parse(groupVersion string, specs []string) (*api, error) {
	group, version, found := strings.Cut(groupVersion, "/")
	if !found {
		return nil, fmt.Errorf("%q is not GROUP/VERSION", groupVersion)
	}
	served := &api{group: group, version: version, resources: []resource{}}
	for _, spec := range specs {
		parts := strings.Split(spec, ":")
		if len(parts) != 3 {
			return nil, fmt.Errorf("%q is not NAME:KIND:NAMESPACED", spec)
		}
		served.resources = append(served.resources, resource{
			Name: parts[0], Kind: parts[1], Namespaced: parts[2] == "true", Verbs: []string{"get", "list"}})
	}
	return served, nil
}

// ServeHTTP answers health probes, discovery, and lists (always empty).
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	root := "/apis/" + a.group + "/" + a.version
	switch {
	case path == "/livez" || path == "/readyz" || path == "/healthz":
		fmt.Fprintln(w, "ok")
	case path == "/apis":
		reply(w, http.StatusOK, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{a.describe()}})
	case path == "/apis/"+a.group:
		reply(w, http.StatusOK, a.describe())
	case path == root:
		reply(w, http.StatusOK, map[string]any{
			"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": a.group + "/" + a.version, "resources": a.resources})
	case strings.HasPrefix(path, root+"/"):
		a.list(w, strings.Split(strings.TrimPrefix(path, root+"/"), "/"))
	default:
		notFound(w, path)
	}
}

func (a *api) describe() map[string]any {
	version := map[string]any{"groupVersion": a.group + "/" + a.version, "version": a.version}
	return map[string]any{"kind": "APIGroup", "apiVersion": "v1", "name": a.group,
		"versions": []any{version}, "preferredVersion": version}
}

// list answers RESOURCE and namespaces/NAME/RESOURCE with an empty list, anything deeper with 404.
func (a *api) list(w http.ResponseWriter, segments []string) {
	if len(segments) == 3 && segments[0] == "namespaces" {
		segments = segments[2:]
	}
	for _, served := range a.resources {
		if len(segments) == 1 && segments[0] == served.Name {
			reply(w, http.StatusOK, map[string]any{"kind": served.Kind + "List",
				"apiVersion": a.group + "/" + a.version, "metadata": map[string]any{}, "items": []any{}})
			return
		}
	}
	notFound(w, strings.Join(segments, "/"))
}

func notFound(w http.ResponseWriter, what string) {
	reply(w, http.StatusNotFound, map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{},
		"status": "Failure", "reason": "NotFound", "code": http.StatusNotFound, "message": what + " not found"})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		log.Print(err)
	}
}

// selfSigned makes the serving certificate, as Metrics Server does without --tls-cert-file.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "metrics-stand-in"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
