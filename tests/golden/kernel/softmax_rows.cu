static __device__ __forceinline__ float max_f32(float a, float b) { return a > b || a != a ? a : b; }
static __device__ __forceinline__ float lanes_reduce_max_f32(float x, int lane, int team) {
    float x16 = __shfl_xor_sync(0xffffffffu, x, 16);
    x = max_f32(x, x16);
    float x8 = __shfl_xor_sync(0xffffffffu, x, 8);
    x = max_f32(x, x8);
    float x4 = __shfl_xor_sync(0xffffffffu, x, 4);
    x = max_f32(x, x4);
    float x2 = __shfl_xor_sync(0xffffffffu, x, 2);
    x = max_f32(x, x2);
    float x1 = __shfl_xor_sync(0xffffffffu, x, 1);
    x = max_f32(x, x1);
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
extern "C" __global__ void __launch_bounds__(128)
fused(const float* __restrict__ in0, float* __restrict__ out0) {
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part * 4 + team;
    float k0[6];
    float k3[6];
    float a0 = -__int_as_float(0x7f800000);
    #pragma unroll 3
    for (int item = 0; item < 3; item++) {
        const int p = lane * 2 + item * 64;
        if (p < 130) {
            const float2 w0 = *(const float2*)(in0 + q * 130 + p);
            const float v0_0 = w0.x;
            const float v0_1 = w0.y;
            a0 = max_f32(v0_0, a0);
            a0 = max_f32(v0_1, a0);
            k0[item * 2 + 0] = v0_0;
            k0[item * 2 + 1] = v0_1;
        }
    }
    a0 = lanes_reduce_max_f32(a0, lane, team);
    const float v1 = a0;
    float a1 = 0.0f;
    #pragma unroll 3
    for (int item = 0; item < 3; item++) {
        const int p = lane * 2 + item * 64;
        if (p < 130) {
            const float v0_0 = k0[item * 2 + 0];
            const float v0_1 = k0[item * 2 + 1];
            const float v2_0 = v0_0 - v1;
            const float v2_1 = v0_1 - v1;
            const float v3_0 = expf(v2_0);
            const float v3_1 = expf(v2_1);
            a1 = v3_0 + a1;
            a1 = v3_1 + a1;
            k3[item * 2 + 0] = v3_0;
            k3[item * 2 + 1] = v3_1;
        }
    }
    a1 = lanes_reduce_sum_f32(a1, lane, team);
    const float v4 = a1;
    const float v5 = 1 / v4;
    #pragma unroll 3
    for (int item = 0; item < 3; item++) {
        const int p = lane * 2 + item * 64;
        if (p < 130) {
            const float v3_0 = k3[item * 2 + 0];
            const float v3_1 = k3[item * 2 + 1];
            const float v6_0 = v3_0 * v5;
            const float v6_1 = v3_1 * v5;
            *(float2*)(out0 + q * 130 + p) = make_float2(v6_0, v6_1);
        }
    }
}
