module github.com/mojo-patch/mojo-patch

go 1.26.8

require (
	github.com/x448/float16 v0.8.4
	github.com/yalue/onnxruntime_go v1.36.0
	gonum.org/v1/gonum v0.17.0
	google.golang.org/protobuf v1.36.12
)
