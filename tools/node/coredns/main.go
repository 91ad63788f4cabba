// Command coredns is CoreDNS with the plugins that cluster DNS needs, and without those for clouds, which take minutes to
// build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// The order in which plugins see a query, as in CoreDNS' plugin.cfg.
	dnsserver.Directives = []string{
		"health", "ready", "prometheus", "errors", "log", "cache", "kubernetes", "forward",
	}
	coremain.Run()
}
