module ringfence.dev/proto

go 1.26.0

require (
	connectrpc.com/connect v1.21.1
	github.com/google/uuid v1.6.0
	github.com/oapi-codegen/runtime v1.8.0
	google.golang.org/protobuf v1.36.12
)

require github.com/apapsch/go-jsonmerge/v2 v2.0.0 // indirect
