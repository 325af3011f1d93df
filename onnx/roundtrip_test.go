package onnx
import ("testing";"path/filepath";"os";"google.golang.org/protobuf/proto";"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb")
func TestQuick(t *testing.T){
 fs,_:=filepath.Glob("/work/shared/zoo/*/*.onnx")
 for _,f:=range fs{ b,_:=os.ReadFile(f); p:=&onnxpb.ModelProto{}; proto.Unmarshal(b,p)
  m,err:=Read(f); if err!=nil{t.Error(err);continue}
  out:=filepath.Join(t.TempDir(),"x.onnx"); if err:=Write(out,m);err!=nil{t.Error(err)}
  b2,_:=os.ReadFile(out); q:=&onnxpb.ModelProto{}; proto.Unmarshal(b2,q)
  if !proto.Equal(p,q){t.Error("differs",f)} }
 t.Log(len(fs))
}
