package peertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"ringfence.dev/libs/testkit"
)

// kamailioModules are the Kamailio modules that every configuration can use.
const kamailioModules = "kex tm tmx sl rr pv maxfwd auth textops siputils usrloc registrar"

// Kamailio starts Kamailio in a folder, at a port of 127.0.0.1 for UDP and for the given
// transports. routing is the request routing of the Kamailio configuration. It can begin with lines
// that load modules and set parameters.
func Kamailio(dir, routing string, transports ...string) (p *Program, port int, err error) {
	if port, err = testkit.Port(); err != nil {
		return nil, 0, err
	}
	text := "#!KAMAILIO\ndebug=0\nlog_stderror=yes\nfork=yes\nchildren=1\ntcp_children=1\nauto_aliases=no\n"
	if len(transports) == 0 {
		text += "disable_tcp=yes\n"
	}
	for _, transport := range append([]string{"udp"}, transports...) {
		text += fmt.Sprintf("listen=%s:127.0.0.1:%d\n", transport, port)
	}
	text += fmt.Sprintf("mpath=%q\n", modulesOf("kamailio")+"/")
	for name := range strings.FieldsSeq(kamailioModules) {
		text += fmt.Sprintf("loadmodule %q\n", name+".so")
	}
	file := filepath.Join(dir, "kamailio.cfg")
	if err := os.WriteFile(file, []byte(text+routing), 0o600); err != nil {
		return nil, 0, fmt.Errorf("write kamailio's settings: %w", err)
	}
	if p, err = Run(dir, "kamailio", "-f", file, "-DD", "-E", "-Y", dir, "-m", "32", "-M", "4"); err != nil {
		return nil, 0, err
	}
	if err := p.Listens("udp", port); err != nil {
		p.Stop()
		return nil, 0, err
	}
	return p, port, nil
}
