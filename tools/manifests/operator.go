package main

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// serviceMonitor and prometheusRule are two kinds of the Prometheus operator, with the fields that
// the charts use.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector          metav1.LabelSelector                    `json:"selector"`
		NamespaceSelector struct{ MatchNames []string }           `json:"namespaceSelector"`
		JobLabel          string                                  `json:"jobLabel"`
		Endpoints         []struct{ Port, Path, Interval string } `json:"endpoints"`
	} `json:"spec"`
}

type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Groups []struct {
			Name     string            `json:"name"`
			Interval string            `json:"interval"`
			Labels   map[string]string `json:"labels"`
			Rules    []struct {
				Record        string            `json:"record"`
				Alert         string            `json:"alert"`
				Expr          string            `json:"expr"`
				For           string            `json:"for"`
				KeepFiringFor string            `json:"keep_firing_for"`
				Labels        map[string]string `json:"labels"`
				Annotations   map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}
