static __device__ __forceinline__ float lanes_reduce_sum_f32_0(float x, int lane, int team, float* shared) {
    float x16 = __shfl_xor_sync(0xffffffffu, x, 16);
    x = x + x16;
    float x8 = __shfl_xor_sync(0xffffffffu, x, 8);
    x = x + x8;
    float x4 = __shfl_xor_sync(0xffffffffu, x, 4);
    x = x + x4;
    float x2 = __shfl_xor_sync(0xffffffffu, x, 2);
    x = x + x2;
    float x1 = __shfl_xor_sync(0xffffffffu, x, 1);
    x = x + x1;
    if (lane % 32 == 0)
        shared[team * 16 + lane / 32] = x;
    __syncthreads();
    x = shared[team * 16];
    for (int i = 1; i < 16; i++) x = x + shared[team * 16 + i];
    __syncthreads();
    return x;
}
static __device__ __forceinline__ float lanes_reduce_sum_f32(float x, int lane, int team) {
    float x16 = __shfl_xor_sync(0xffffffffu, x, 16);
    x = x + x16;
    float x8 = __shfl_xor_sync(0xffffffffu, x, 8);
    x = x + x8;
    float x4 = __shfl_xor_sync(0xffffffffu, x, 4);
    x = x + x4;
    float x2 = __shfl_xor_sync(0xffffffffu, x, 2);
    x = x + x2;
    float x1 = __shfl_xor_sync(0xffffffffu, x, 1);
    x = x + x1;
    return x;
}
extern "C" __global__ void __launch_bounds__(512)
fused_0(const float* __restrict__ in0, float* __restrict__ out0, float* __restrict__ out1) {
    __shared__ float shared_f32[16];
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part + team;
    float a0 = 0.0f;
    float a1 = 0.0f;
    for (int p = lane * 4; p < 6168; p += 2048) {
        const float4 w0 = *(const float4*)(in0 + q * 6168 + p);
        const float v0_0 = w0.x;
        const float v0_1 = w0.y;
        const float v0_2 = w0.z;
        const float v0_3 = w0.w;
        const float v1_0 = expf(v0_0);
        const float v1_1 = expf(v0_1);
        const float v1_2 = expf(v0_2);
        const float v1_3 = expf(v0_3);
        const float v3_0 = v1_0 * v1_0;
        const float v3_1 = v1_1 * v1_1;
        const float v3_2 = v1_2 * v1_2;
        const float v3_3 = v1_3 * v1_3;
        a0 = v1_0 + a0;
        a0 = v1_1 + a0;
        a0 = v1_2 + a0;
        a0 = v1_3 + a0;
        a1 = v3_0 + a1;
        a1 = v3_1 + a1;
        a1 = v3_2 + a1;
        a1 = v3_3 + a1;
    }
    a0 = lanes_reduce_sum_f32_0(a0, lane, team, shared_f32);
    a1 = lanes_reduce_sum_f32_0(a1, lane, team, shared_f32);
    const float v2 = a0;
    const float v4 = a1;
    if (lane == 0) {
        out0[q] = v2;
        out1[q] = v4;
    }
}
extern "C" __global__ void __launch_bounds__(128)
fused(const float* __restrict__ in0, const float* __restrict__ in1, float* __restrict__ out0) {
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int wanted = part * 4 + team;
    const bool active = wanted <= 0;
    const int q = active ? wanted : 0;
    float a0 = 0.0f;
    float a1 = 0.0f;
    for (int p = lane; p < 125; p += 32) {
        const float v0 = in1[p];
        const float v2 = in0[p];
        a0 = v0 + a0;
        a1 = v2 + a1;
    }
    a0 = lanes_reduce_sum_f32(a0, lane, team);
    a1 = lanes_reduce_sum_f32(a1, lane, team);
    const float v1 = a0;
    const float v3 = a1;
    const float v4 = v3 * v3;
    const float v5 = v1 - v4;
    if (lane == 0 && active) {
        out0[0] = v5;
    }
}
