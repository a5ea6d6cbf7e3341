static __device__ __forceinline__ unsigned short f16_of_f32(float x) { unsigned short y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
static __device__ __forceinline__ float f32_of_f16(unsigned short x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
static __device__ __forceinline__ float lanes_reduce_sum_f32(float x, int lane, int team, float* shared) {
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
        shared[team * 2 + lane / 32] = x;
    __syncthreads();
    x = shared[team * 2];
    for (int i = 1; i < 2; i++) x = x + shared[team * 2 + i];
    __syncthreads();
    return x;
}
extern "C" __global__ void __launch_bounds__(128)
fused(const unsigned short* __restrict__ in0, const unsigned short* __restrict__ in1, const unsigned short* __restrict__ in2, const unsigned short* __restrict__ in3, unsigned short* __restrict__ out0, unsigned short* __restrict__ out1) {
    __shared__ float shared_f32[4];
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part * 2 + team;
    float k2[12];
    float k7[12];
    float a0 = 0.0f;
    #pragma unroll 3
    for (int item = 0; item < 3; item++) {
        const int p = lane * 4 + item * 256;
        const ushort4 w0 = *(const ushort4*)(in0 + q * 768 + p);
        const float v0_0 = f32_of_f16(w0.x);
        const float v0_1 = f32_of_f16(w0.y);
        const float v0_2 = f32_of_f16(w0.z);
        const float v0_3 = f32_of_f16(w0.w);
        const ushort4 w1 = *(const ushort4*)(in1 + q * 768 + p);
        const float v1_0 = f32_of_f16(w1.x);
        const float v1_1 = f32_of_f16(w1.y);
        const float v1_2 = f32_of_f16(w1.z);
        const float v1_3 = f32_of_f16(w1.w);
        const float v2_0 = v0_0 + v1_0;
        const float v2_1 = v0_1 + v1_1;
        const float v2_2 = v0_2 + v1_2;
        const float v2_3 = v0_3 + v1_3;
        a0 = v2_0 + a0;
        a0 = v2_1 + a0;
        a0 = v2_2 + a0;
        a0 = v2_3 + a0;
        k2[item * 4 + 0] = v2_0;
        k2[item * 4 + 1] = v2_1;
        k2[item * 4 + 2] = v2_2;
        k2[item * 4 + 3] = v2_3;
        *(ushort4*)(out0 + q * 768 + p) = make_ushort4(f16_of_f32(v2_0), f16_of_f32(v2_1), f16_of_f32(v2_2), f16_of_f32(v2_3));
    }
    a0 = lanes_reduce_sum_f32(a0, lane, team, shared_f32);
    const float v3 = a0;
    const float v6 = v3 * 0.0013020834f;
    float a1 = 0.0f;
    #pragma unroll 3
    for (int item = 0; item < 3; item++) {
        const int p = lane * 4 + item * 256;
        const float v2_0 = k2[item * 4 + 0];
        const float v2_1 = k2[item * 4 + 1];
        const float v2_2 = k2[item * 4 + 2];
        const float v2_3 = k2[item * 4 + 3];
        const float v7_0 = v2_0 - v6;
        const float v7_1 = v2_1 - v6;
        const float v7_2 = v2_2 - v6;
        const float v7_3 = v2_3 - v6;
        const float v8_0 = v7_0 * v7_0;
        const float v8_1 = v7_1 * v7_1;
        const float v8_2 = v7_2 * v7_2;
        const float v8_3 = v7_3 * v7_3;
        a1 = v8_0 + a1;
        a1 = v8_1 + a1;
        a1 = v8_2 + a1;
        a1 = v8_3 + a1;
        k7[item * 4 + 0] = v7_0;
        k7[item * 4 + 1] = v7_1;
        k7[item * 4 + 2] = v7_2;
        k7[item * 4 + 3] = v7_3;
    }
    a1 = lanes_reduce_sum_f32(a1, lane, team, shared_f32);
    const float v9 = a1;
    const float v10 = v9 * 0.0013020834f;
    const float v12 = v10 + 1.001358e-05f;
    const float v13 = sqrtf(v12);
    const float v14 = 1 / v13;
    #pragma unroll 3
    for (int item = 0; item < 3; item++) {
        const int p = lane * 4 + item * 256;
        const float v7_0 = k7[item * 4 + 0];
        const float v7_1 = k7[item * 4 + 1];
        const float v7_2 = k7[item * 4 + 2];
        const float v7_3 = k7[item * 4 + 3];
        const float v15_0 = v7_0 * v14;
        const float v15_1 = v7_1 * v14;
        const float v15_2 = v7_2 * v14;
        const float v15_3 = v7_3 * v14;
        const ushort4 w16 = *(const ushort4*)(in2 + p);
        const float v16_0 = f32_of_f16(w16.x);
        const float v16_1 = f32_of_f16(w16.y);
        const float v16_2 = f32_of_f16(w16.z);
        const float v16_3 = f32_of_f16(w16.w);
        const float v17_0 = v15_0 * v16_0;
        const float v17_1 = v15_1 * v16_1;
        const float v17_2 = v15_2 * v16_2;
        const float v17_3 = v15_3 * v16_3;
        const ushort4 w18 = *(const ushort4*)(in3 + p);
        const float v18_0 = f32_of_f16(w18.x);
        const float v18_1 = f32_of_f16(w18.y);
        const float v18_2 = f32_of_f16(w18.z);
        const float v18_3 = f32_of_f16(w18.w);
        const float v19_0 = v17_0 + v18_0;
        const float v19_1 = v17_1 + v18_1;
        const float v19_2 = v17_2 + v18_2;
        const float v19_3 = v17_3 + v18_3;
        *(ushort4*)(out1 + q * 768 + p) = make_ushort4(f16_of_f32(v19_0), f16_of_f32(v19_1), f16_of_f32(v19_2), f16_of_f32(v19_3));
    }
}
