package main

import (
	"ringfence.dev/libs/app"
	"ringfence.dev/services/contacts-compliance/internal/consentlog"
	"ringfence.dev/services/contacts-compliance/internal/retention"
)

// Config contains the environment variables of contacts-compliance.
type Config struct {
	app.Config
	Retention retention.Config
	HeadLog   consentlog.HeadLogConfig

	ConsentKeys []string `env:"CONSENT_KEYS" envSeparator:"," help:"Keys that sign the consent records, as <id>=<base64 of 32 bytes or more>,…. The first key signs, and all keys verify. If empty, a key is derived from SIGNING_KEY, and older records cannot be verified after SIGNING_KEY was changed."`
}
