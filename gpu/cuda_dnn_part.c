/* The part of attention that one call of cuDNN takes: its size and its addresses. */
#include "gpu/cuda_dnn_part.h"

struct cuda_dnn_part cuda_dnn_part_choose(struct cuda_dnn_part all, int64_t one_bytes, int64_t room_bytes)
{
	int64_t most = one_bytes > 0 ? room_bytes / one_bytes : all.documents * all.kv_heads;
	struct cuda_dnn_part part = {1, 1};

	for (int64_t heads = all.kv_heads; heads > 1 && part.kv_heads == 1; heads--)
		if (all.kv_heads % heads == 0 && heads <= most)
			part.kv_heads = heads;
	for (int64_t documents = all.documents;
	        part.kv_heads == all.kv_heads && documents > 1 && part.documents == 1; documents--)
		if (all.documents % documents == 0 && documents * part.kv_heads <= most)
			part.documents = documents;
	return part;
}

static dev_addr moved(dev_addr at, int64_t elements, int64_t element_bytes)
{
	return dev_is_none(at) ? at : dev_at(at, elements * element_bytes);
}

struct op_attention_grad cuda_dnn_part_of(
        const struct op_attention_grad *o, int64_t document, int64_t kv_head)
{
	int64_t token = document * o->document_tokens, head = o->heads / o->kv_heads * kv_head;
	int64_t q = token * o->qkv_stride + head * o->q_head_stride,
	        kv = token * o->qkv_stride + kv_head * o->kv_head_stride,
	        out = token * o->out_stride + head * o->head_dim;
	struct op_attention_grad part = *o;

	part.q = moved(o->q, q, 2);
	part.dq = moved(o->dq, q, 2);
	part.k = moved(o->k, kv, 2);
	part.dk = moved(o->dk, kv, 2);
	part.v = moved(o->v, kv, 2);
	part.dv = moved(o->dv, kv, 2);
	part.out = moved(o->out, out, 2);
	part.dout = moved(o->dout, out, 2);
	part.lse = moved(o->lse, token * o->heads + head, 4);
	return part;
}
