module ringfence.dev/docs

go 1.26.0

require (
	github.com/yuin/goldmark v1.8.6
	golang.org/x/net v0.62.0
)
