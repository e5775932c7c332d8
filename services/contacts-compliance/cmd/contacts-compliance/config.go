package main

import (
	"ringfence.dev/libs/app"
	"ringfence.dev/services/contacts-compliance/internal/consentlog"
)

// Config is the environment of contacts-compliance.
type Config struct {
	app.Config
	Keeping consentlog.PartitionConfig
	Witness consentlog.HeadLogConfig

	ConsentKeys []string `env:"CONSENT_KEYS" envSeparator:"," help:"keys of the consent records' chains as <id>=<base64 of 32 bytes or more>,…; the first signs, all check; empty: one made from SIGNING_KEY"`
}
