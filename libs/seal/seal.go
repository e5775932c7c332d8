// Package seal owns secrets at rest: AES-256-GCM under keys from the environment, each ciphertext naming its key.
package seal

// Config is the sealing part of a service's environment.
type Config struct {
	// Keys are "<id>=<base64 of 32 bytes>"; the first seals, all open.
	Keys []string `env:"SEALING_KEYS,required" envSeparator:","`
}

// Box seals and opens.
type Box struct{}

// New parses the keys.
func New(cfg Config) (*Box, error) { panic("unwritten") }

// Seal encrypts; about is bound to the ciphertext and must be given again to Open.
func (b *Box) Seal(plain []byte, about string) (sealed []byte, err error) { panic("unwritten") }

// Open decrypts.
func (b *Box) Open(sealed []byte, about string) ([]byte, error) { panic("unwritten") }
