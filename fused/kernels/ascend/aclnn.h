// The part of CANN's C interface that the kernels call, declared after its public documentation: nothing here
// comes from CANN's headers, and nothing links against it. README.md names the document of each call.
#pragma once

#include <stdint.h>

extern "C" {
struct aclTensor;
struct aclTensorList;
struct aclScalar;
struct aclIntArray;
struct aclOpExecutor;
typedef void* aclrtStream;
typedef int32_t aclnnStatus;

enum aclDataType { ACL_FLOAT = 0, ACL_FLOAT16 = 1, ACL_INT32 = 3, ACL_INT64 = 9, ACL_BOOL = 12, ACL_BF16 = 27 };
enum aclFormat { ACL_FORMAT_ND = 2 };
}

namespace mojo {

// Call is an operator of CANN, which is called in two phases: the first looks at the arguments, makes an executor
// and says how much memory the second needs, which puts the work on the stream. Both are null until they are found.
template <class... Args>
struct Call {
  const char* name;
  aclnnStatus (*plan)(Args..., uint64_t* workspace_size, aclOpExecutor** executor) = nullptr;
  aclnnStatus (*launch)(void* workspace, uint64_t workspace_size, aclOpExecutor* executor,
                        aclrtStream stream) = nullptr;

  explicit Call(const char* n) : name(n) {}
};

using In = const aclTensor*;
using Out = aclTensor*;
using List = const aclTensorList*;
using Number = const aclScalar*;

// Cann is the table of CANN functions. Every kernel needs the functions of the first part. Of the operator functions,
// the table holds those found so far.
struct Cann {
  const char* (*aclGetRecentErrMsg)() = nullptr;
  aclTensor* (*aclCreateTensor)(const int64_t* view_dims, uint64_t view_rank, aclDataType type, const int64_t* strides,
                                int64_t offset, aclFormat format, const int64_t* storage_dims, uint64_t storage_rank,
                                void* data) = nullptr;
  aclnnStatus (*aclDestroyTensor)(const aclTensor*) = nullptr;
  aclTensorList* (*aclCreateTensorList)(const aclTensor* const* tensors, uint64_t count) = nullptr;
  aclnnStatus (*aclDestroyTensorList)(const aclTensorList*) = nullptr;  // and the tensors in it
  aclScalar* (*aclCreateScalar)(void* value, aclDataType type) = nullptr;
  aclnnStatus (*aclDestroyScalar)(const aclScalar*) = nullptr;
  aclIntArray* (*aclCreateIntArray)(const int64_t* values, uint64_t count) = nullptr;
  aclnnStatus (*aclDestroyIntArray)(const aclIntArray*) = nullptr;
  // An executor that is never launched is destroyed by these two; a launched one, by its launch.
  aclnnStatus (*aclSetAclOpExecutorRepeatable)(aclOpExecutor*) = nullptr;
  aclnnStatus (*aclDestroyAclOpExecutor)(aclOpExecutor*) = nullptr;

  Call<In, In, Number, Out> Add{"aclnnAdd"};        // self, other, alpha, out
  Call<In, Number, Number, Out> Adds{"aclnnAdds"};  // self, other, alpha, out
  Call<In, In, Out> Mul{"aclnnMul"};
  Call<In, Number, Out> Muls{"aclnnMuls"};
  Call<In, In, Out> Div{"aclnnDiv"};
  Call<In, Out> Sqrt{"aclnnSqrt"};
  Call<In, Number, Number, Out> Clamp{"aclnnClamp"};  // self, least, greatest, out
  Call<In, aclDataType, Out> Cast{"aclnnCast"};
  Call<Out, In> InplaceCopy{"aclnnInplaceCopy"};  // to, from
  Call<In> InplaceOne{"aclnnInplaceOne"};
  // self, dim, index, value, reduce
  Call<Out, int64_t, In, Number, int64_t> InplaceScatterValue{"aclnnInplaceScatterValue"};
  Call<Out, In, Number> InplaceMaskedFillScalar{"aclnnInplaceMaskedFillScalar"};     // self, mask, value
  Call<In, const aclIntArray*, bool, aclDataType, Out> ReduceSum{"aclnnReduceSum"};  // self, dims, keep, type, out
  Call<In, int64_t, int64_t, bool, bool, Out, Out> Topk{"aclnnTopk"};  // self, k, dim, largest, sorted, values, indices
  Call<In, int64_t, In, Out> Gather{"aclnnGather"};                    // self, dim, index, out

  Call<In, int64_t, Out> Triu{"aclnnTriu"};  // self, diagonal, out
  Call<In, int64_t, Out> Tril{"aclnnTril"};
  Call<In, Number, Out> EqScalar{"aclnnEqScalar"};
  Call<In, In, Out> LogicalOr{"aclnnLogicalOr"};
  Call<In, const aclIntArray*, bool, Out> All{"aclnnAll"};  // self, dims, keep, out

  Call<In, Out> Silu{"aclnnSilu"};
  Call<In, Number, Out> Swish{"aclnnSwish"};     // self, beta, out
  Call<In, int64_t, Out> GeluV2{"aclnnGeluV2"};  // self, approximate (1: tanh), out
  Call<In, In> Relu{"aclnnRelu"};                // self, out
  Call<In, int64_t, In> SwiGlu{"aclnnSwiGlu"};   // self, dim, out
  Call<In, Out> Sigmoid{"aclnnSigmoid"};
  Call<In, Number, Number, Out> Softplus{"aclnnSoftplus"};  // self, beta, threshold, out
  Call<In, int64_t, Out> Softmax{"aclnnSoftmax"};           // self, dim, out

  Call<In, In, double, In, In> RmsNorm{"aclnnRmsNorm"};                   // x, gamma, epsilon, y, rstd
  Call<In, In, In, double, Out, Out, Out> AddRmsNorm{"aclnnAddRmsNorm"};  // x1, x2, gamma, epsilon, y, rstd, x
  Call<In, In, In, int64_t, Out> RotaryPositionEmbedding{"aclnnRotaryPositionEmbedding"};  // x, cos, sin, mode, out
  // query, key, value, shift, drop_mask, padding_mask, mask, prefix, scale, keep_prob, before, after, heads, layout,
  // inner_precise, sparse_mode, softmax_max, softmax_sum, softmax, out
  Call<In, In, In, In, In, In, In, const aclIntArray*, double, double, int64_t, int64_t, int64_t, char*, int64_t,
       int64_t, In, In, In, In>
      FlashAttentionScore{"aclnnFlashAttentionScore"};
  Call<In, In, int64_t, In, In, In> MoeGatingTopKSoftmax{"aclnnMoeGatingTopKSoftmax"};  // x, finished, k, y, ids, rows
  // x, ids, active_num, capacity, experts, drop_pad, counts_flag, before_flag, expanded_x, row_ids, counts, before
  Call<In, In, int64_t, int64_t, int64_t, int64_t, int64_t, bool, In, In, In, In> MoeInitRoutingV2{
      "aclnnMoeInitRoutingV2"};
  // x, weight, bias, scale, offset, antiquant_scale, antiquant_offset, per_token_scale, group_list, activation_input,
  // activation_scale, activation_offset, split_item, group_type, group_list_type, activation, out, feature, quant_scale
  Call<List, List, List, List, List, List, List, List, In, List, List, List, int64_t, int64_t, int64_t, int64_t,
       aclTensorList*, aclTensorList*, aclTensorList*>
      GroupedMatmulV4{"aclnnGroupedMatmulV4"};
  // expanded_x, row_ids, x1, x2, bias, scales, ids, drop_pad, out
  Call<In, In, In, In, In, In, In, int64_t, In> MoeFinalizeRoutingV2{"aclnnMoeFinalizeRoutingV2"};
};

}  // namespace mojo
